package e2e_test

import (
	"strings"
	"testing"

	"machine-pivot/internal/disruption"
	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// coreUser creates the user core, as Ignition does on a machine, durably.
const coreUser = `echo "core:x:1000:1000::/home/core:/bin/sh" >>/etc/passwd
echo "core:x:1000:" >>/etc/group
echo "core:!!:1::::::" >>/etc/shadow
install -d -m 700 -o core -g core /var/home/core
sync
`

// driftScript runs on the machine in its first and its second boot.
const driftScript = `
key=/var/home/core/.ssh/authorized_keys.d/ignition
state() { echo "@@$1 $(stat -c "%a %U" $key) $(cat $key) $(cat /etc/drift/conf) $(sed -n s/^core://p /etc/shadow | cut -d: -f1)"; }
if [ -e /etc/pivot/machineconfig.json ]; then
	state second
	echo "@@second unit $(systemctl show -P Result pivot-project.service) $(systemctl show -P ConditionResult pivot-project.service)"
	pivot verify && echo "@@second verified"
	exit
fi
` + coreUser + `boot=$(cat /proc/sys/kernel/random/boot_id)
pivot apply --reboot=never /etc/one.yaml
state applied
pivot verify && echo "@@applied verified"
systemctl start drift-watch.service
until systemctl show -P StatusText drift-watch.service | grep -q "is what was asked for"; do sleep 0.1; done
rm $key; echo mine >/etc/drift/conf
until [ "$(systemctl show -P SubState drift-watch.service)" = exited ]; do sleep 0.1; done
echo "@@watch status $(systemctl show -P ExecMainStatus drift-watch.service), metric $(grep "^pivot_differences" /var/lib/pivot-drift.prom)"
journalctl --sync
journalctl -q -o cat MESSAGE_ID=53370146919d4c348889c007e2388688 | sed "s/^/@@event /"
pivot apply --repair --reboot=never
state repaired
pivot verify && [ $boot = "$(cat /proc/sys/kernel/random/boot_id)" ] && echo "@@repaired verified"
echo "@@found $(cat /var/lib/pivot/found/*/[0-9a-f]*) $(stat -c %a /var/lib/pivot/found)"
pivot apply --repair
systemctl start slow.service
pivot apply /etc/two.yaml
`

// repairsDrift (P56, P66, P68) applies a MachineConfig with SSH keys, a password and a file live, and
// then removes the key and changes the file by hand. pivot must report the drift within a moment and
// repair it without a reboot. Then the power is cut in the middle of another live change, which the
// next boot must finish, in a home directory too. /tmp is still read-only when that boot starts the
// projecting unit.
func repairsDrift(t *testing.T, l *bootlab.Lab) {
	const config = `spec:
  config:
    ignition: {version: 3.4.0}
    storage: {files: [{path: /etc/drift/conf, contents: {source: "data:,ours"}}]}
    passwd: {users: [{name: core, sshAuthorizedKeys: [key-of-core], passwordHash: $y$hash}]}
`
	next := strings.NewReplacer("ours", "next", "key-of-core", "next-key", "$y$hash", "$y$next", "files: [", "files: [{path: /etc/slow/conf}, ").Replace(config)
	const rules = "files: [{path: /etc/drift, actions: [{type: None}]}, {path: /etc/slow, actions: [{type: Reload, reload: {serviceName: slow.service}}]}]\n"
	const watch = "[Service]\nType=exec\nNotifyAccess=main\nExecStart=/usr/bin/pivot verify --watch --until-drift\nSuccessExitStatus=65\nRemainAfterExit=yes\n"
	files := append(bootlab.Typed("drift", ". /etc/drift.sh", "PathExists=/etc/drift.sh"),
		vm.TreeFile{Path: "/etc/drift.sh", Mode: 0o755, Content: []byte(driftScript)},
		vm.TreeFile{Path: "/etc/one.yaml", Mode: 0o644, Content: []byte(config)},
		vm.TreeFile{Path: "/etc/two.yaml", Mode: 0o644, Content: []byte(next)},
		vm.TreeFile{Path: "/etc/systemd/system/slow.service", Mode: 0o644, Content: []byte(slowService)},
		vm.TreeFile{Path: disruption.RulesPath, Mode: 0o644, Content: []byte(rules)},
		vm.TreeFile{Path: settings.Path, Mode: 0o644, Content: []byte("metrics = /var/lib/pivot.prom\n")},
		vm.TreeFile{Path: "/etc/systemd/system/drift-watch.service", Mode: 0o644, Content: []byte(watch)})
	m := machineWith(t, l, bootlab.Setup{Files: files})
	first := boot(t, m, vm.BootOptions{StopWhen: inTheMiddle})
	expectSaid(t, first,
		"@@applied 600 core key-of-core ours $y$hash", "@@applied verified",
		"@@watch status 65, metric pivot_differences 2", "@@event warning: the machine now differs from its target: ",
		"what was found at 2 paths is kept in /var/lib/pivot/found/2",
		"@@repaired 600 core key-of-core ours $y$hash", "@@repaired verified", "@@found mine 700", "nothing to repair")
	second := boot(t, m, vm.BootOptions{})
	expectSaid(t, second, "finishing a change of the running system, which was interrupted", "@@second 600 core next-key next $y$next", "@@second verified", "@@second unit success yes")
	if r := report(t, second); first.Exit != vm.Stopped || r.Version != "A.1" || r.Deployments != 1 || r.FailedUnits != "" || r.Status.Phase != string(pivot.PhaseDone) {
		t.Errorf("the machine %s; version %s, %d deployments, failed units %q, status %+v", first.Exit, r.Version, r.Deployments, r.FailedUnits, r.Status)
	}
}
