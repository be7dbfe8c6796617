package disruption

// RulesPath is where a machine has rules of its own.
const RulesPath = "/etc/pivot/disruption.yaml"

// projectUnit projects what a system carries outside of /etc when it boots. A change of the
// running system does that itself.
const projectUnit = "pivot-project.service"

// Defaults are the rules of a machine that has none of its own: those of the operator, and
// that nothing that runs needs the rules themselves, or what projects at the next boot.
func Defaults() Rules { return Rules{builtIn()} }

func builtIn() []Rule {
	reloadCRIO, restartKubelet := Action{Reload, crio}, Action{Restart, kubelet}
	rule := func(path string, actions ...Action) Rule { return Rule{Path: path, Actions: actions, Ours: true} }
	return []Rule{
		rule(RulesPath),
		{Unit: projectUnit, Ours: true},
		{Keys: true, Ours: true},
		rule("/var/lib/kubelet/config.json"), // the pull secret, which is read at each pull
		rule("/etc/nmstate/openshift"),
		rule("/etc/containers/policy.json", reloadCRIO),
		rule("/etc/containers/registries.d", reloadCRIO),
		// In the operator's list this one is special: what it drains a node for here is
		// beyond a host without a cluster.
		rule("/etc/containers/registries.conf", reloadCRIO),
		rule("/etc/crio/policies", reloadCRIO),
		rule("/etc/machine-config-daemon/no-reboot/containers-gpg.pub", reloadCRIO),
		rule("/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt", Action{Restart, CATrust}, Action{Restart, crio}),
		rule("/etc/kubernetes/credential-providers", restartKubelet),
		rule("/etc/systemd/system/kubelet.service.d/40-kubelet-crio-image-credential-provider.conf", Action{Type: DaemonReload}, restartKubelet),
	}
}
