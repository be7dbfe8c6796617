package disruption

// RulesPath is the file with a machine's own rules.
const RulesPath = "/etc/pivot/disruption.yaml"

// projectUnit projects entries outside of /etc during boot. A change of the running system
// projects them itself, so the unit needs no action.
const projectUnit = "pivot-project.service"

// Defaults returns the rules of a machine without rules of its own: those of the
// machine-config operator, and rules that changes of RulesPath and projectUnit need nothing.
func Defaults() Rules { return Rules{builtIn()} }

func builtIn() []Rule {
	reloadCRIO, restartKubelet := Action{Reload, crio}, Action{Restart, kubelet}
	rule := func(path string, actions ...Action) Rule { return Rule{Path: path, Actions: actions, Ours: true} }
	return []Rule{
		rule(RulesPath),
		{Unit: projectUnit, Ours: true},
		{Keys: true, Ours: true},
		rule("/var/lib/kubelet/config.json"), // the pull secret; it is read at each pull
		rule("/etc/nmstate/openshift"),
		rule("/etc/containers/policy.json", reloadCRIO),
		rule("/etc/containers/registries.d", reloadCRIO),
		// The operator has a special rule for this one, which may drain the node. A host
		// without a cluster has nothing to drain.
		rule("/etc/containers/registries.conf", reloadCRIO),
		rule("/etc/crio/policies", reloadCRIO),
		rule("/etc/machine-config-daemon/no-reboot/containers-gpg.pub", reloadCRIO),
		rule("/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt", Action{Restart, CATrust}, Action{Restart, crio}),
		rule("/etc/kubernetes/credential-providers", restartKubelet),
		rule("/etc/systemd/system/kubelet.service.d/40-kubelet-crio-image-credential-provider.conf", Action{Type: DaemonReload}, restartKubelet),
	}
}
