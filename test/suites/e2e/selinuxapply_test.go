package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"machine-pivot/internal/disruption"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// labelsScript runs on the machine in its first and its second boot. It prints the types of files
// that A's and B's policies label differently, and everything that restorecon would change.
const labelsScript = `
state() {
	echo "@@$1 $(stat -c %C /etc/kubernetes/conf /var/lib/probe | cut -d: -f3 | tr '\n' ' ')$(cat /etc/kubernetes/conf /var/lib/probe /var/home/core/.ssh/authorized_keys.d/ignition | tr '\n' ' ')"
	restorecon -nrv /etc /var/home /var/lib/probe /var/lib/pivot | sed "s/^/@@restorecon /"
}
if [ -e /etc/pivot/machineconfig.json ]; then
	state second
	echo "@@second unit $(systemctl show -P Result pivot-project.service) $(systemctl show -P ConditionResult pivot-project.service)"
	pivot verify && echo "@@second verified"
	exit
fi
` + coreUser + `restorecon -r /etc /var/home
before=$(systemctl show -P InvocationID kubelet.service)
pivot apply --reboot=never /etc/one.yaml
[ "$(systemctl show -P InvocationID kubelet.service)" = "$before" ] || echo "@@first kubelet restarted"
state first
pivot verify && echo "@@first verified"
pivot apply -r /etc/two.yaml
`

// appliedEnforced applies MachineConfigs under an enforcing policy, with files below /etc and /var and core's SSH keys
// and password. First it does so live, with a service that is restarted, then with an image. All files must get the
// labels of their own system's policy, nothing may be denied, and the new system projects into /var under its own
// policy. An existing directory that is not in the MachineConfig keeps its label, as in any other change of systems, so
// the MachineConfig lists /etc/kubernetes.
func appliedEnforced(t *testing.T, l *bootlab.Lab, c selinuxCase) {
	config := func(image, word string) []byte {
		return fmt.Appendf(nil, `spec:
  osImageURL: %q
  config:
    ignition: {version: 3.4.0}
    storage:
      directories: [{path: /etc/kubernetes}]
      files:
      - {path: /etc/kubernetes/conf, contents: {source: "data:,%[2]s%%0A"}}
      - {path: /etc/labels/made/conf, contents: {source: "data:,%[2]s%%0A"}}
      - {path: /var/lib/probe, contents: {source: "data:,%[2]s%%0A"}}
    passwd: {users: [{name: core, sshAuthorizedKeys: [key-%[2]s], passwordHash: $y$%[2]s}]}
`, image, word)
	}
	const rules = "files: [{path: /etc/kubernetes, actions: [{type: None}]}, {path: /etc/labels, actions: [{type: DaemonReload}, {type: Restart, restart: {serviceName: kubelet.service}}]}, {path: /var/lib/probe, actions: [{type: None}]}]\n"
	m := machineWith(t, l, bootlab.Setup{Files: append(bootlab.Typed("labels", ". /etc/labels.sh", "PathExists=/etc/labels.sh"),
		vm.TreeFile{Path: "/etc/labels.sh", Mode: 0o755, Content: []byte(labelsScript)},
		vm.TreeFile{Path: "/etc/one.yaml", Mode: 0o644, Content: config("", "one")},
		vm.TreeFile{Path: "/etc/two.yaml", Mode: 0o644, Content: config(c.wanted(t, l).Image, "two")},
		vm.TreeFile{Path: disruption.RulesPath, Mode: 0o644, Content: []byte(rules)})})
	first := boot(t, m, vm.BootOptions{})
	expectSaid(t, first, "@@first etc_runtime_t var_lib_t one one key-one", "@@first verified", "@@first kubelet restarted")
	if first.Exit != vm.Rebooted {
		t.Fatalf("the machine %s, want that it reboots into the new system", first.Exit)
	}
	second := boot(t, m, vm.BootOptions{})
	expectSaid(t, second, "@@second cert_t var_lib_t two two key-two", "@@second unit success yes", "@@second verified")
	r := report(t, second)
	if r.Version != "B.2" || r.FailedUnits != "" || !r.Enforcing {
		t.Errorf("version %s, failed units %q, enforcing %v", r.Version, r.FailedUnits, r.Enforcing)
	}
	expectLabels(t, r)
	for _, b := range []*vm.BootResult{first, second} {
		expectNothingDenied(t, b)
		for _, line := range b.Serial {
			if _, text, found := strings.Cut(line.Text, "@@restorecon "); found && !isGuestsOwn(text) {
				t.Errorf("restorecon: %s", text)
			}
		}
	}
}
