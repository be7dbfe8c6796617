package disruption

// This file has pivot's copy of data of the machine-config operator: the default node disruption policy of
// pkg/apihelpers, and the sections of a config that pkg/controller/common/reconcile.go compares. It is of 20 August
// 2026 (commit 7ff337a4; the branches of 4.22, 5.0, 5.1 and 5.2 agree). To follow a newer operator, change this file
// only.

// OperatorDate is the date of the operator that the tables follow.
const OperatorDate = "2026-08-20"

// OperatorReleases returns the oldest and the newest release of OpenShift that the tables
// describe, as major and minor number.
func OperatorReleases() (oldest, newest [2]int) { return [2]int{4, 22}, [2]int{5, 2} }

// Paths of the operator's default policy that are no different on a host.
const (
	registriesConf = "/etc/containers/registries.conf"
	anchors        = "/etc/pki/ca-trust/source/anchors/"
	iriRegistry    = "iri-registry.service" // of an internal release image
)

// OperatorRules returns the default policy of a cluster.
func OperatorRules() []Rule {
	reloadCRIO, restartKubelet, restartIRI := Action{Reload, crio}, Action{Restart, kubelet}, Action{Restart, iriRegistry}
	daemonReload, updateTrust := Action{Type: DaemonReload}, Action{Restart, CATrust}
	rule := func(path string, actions ...Action) Rule { return Rule{Path: path, Actions: actions, Ours: true} }
	none := Action{Type: None}
	return []Rule{
		rule("/var/lib/kubelet/config.json", none), // the pull secret; it is read at each pull
		rule("/etc/machine-config-daemon/no-reboot/containers-gpg.pub", reloadCRIO),
		rule("/etc/containers/policy.json", reloadCRIO),
		rule(registriesConf, Action{Type: Special}),
		rule("/etc/containers/registries.d", reloadCRIO),
		rule("/etc/crio/policies", reloadCRIO),
		rule("/etc/nmstate/openshift", none),
		rule(anchors+"openshift-config-user-ca-bundle.crt", updateTrust, Action{Restart, crio}),
		rule("/etc/kubernetes/credential-providers", restartKubelet),
		rule("/etc/systemd/system/kubelet.service.d/40-kubelet-crio-image-credential-provider.conf", daemonReload, restartKubelet),
		rule("/etc/iri-registry", restartIRI),
		rule("/usr/local/bin/load-registry-image.sh", restartIRI),
		rule(anchors+"iri-root-ca.crt", updateTrust),
		{Unit: iriRegistry, Actions: []Action{daemonReload, restartIRI}, Ours: true},
		{Keys: true, Actions: []Action{none}, Ours: true},
	}
}

// Treatment is what the operator does about a section of spec.config that differs, in its order or
// form too.
type Treatment int

// The treatments.
const (
	Refused            Treatment = iota // it refuses the whole MachineConfig
	RefusedUnlessEmpty                  // likewise, unless the new section is empty; then nothing happens
	NotCompared                         // nothing happens on a machine
)

// Section is a section of spec.config that the operator does not apply to a running machine.
type Section struct {
	Name      string // its path in the config, such as storage.disks
	Treatment Treatment
	Override  string // the value of irreconcilableValidationOverrides.storage that makes it NotCompared; "" if there is none
}

// OperatorSections returns the sections that the operator does not apply to a running machine. Files,
// units, and the users of passwd have rules of their own.
func OperatorSections() []Section {
	return []Section{
		{"ignition", NotCompared, ""},
		{"kernelArguments", Refused, ""},
		{"passwd.groups", Refused, ""},
		{"storage.directories", Refused, ""},
		{"storage.disks", Refused, "Disks"},
		{"storage.filesystems", Refused, "FileSystems"},
		{"storage.links", RefusedUnlessEmpty, ""},
		{"storage.luks", NotCompared, ""},
		{"storage.raid", Refused, "Raid"},
	}
}

// overrides returns the values of irreconcilableValidationOverrides.storage.
func overrides() (all []string) {
	for _, s := range OperatorSections() {
		if s.Override != "" {
			all = append(all, s.Override)
		}
	}
	return all
}
