package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/internal/disruption"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// liveScript runs on the machine in its first and its second boot.
const liveScript = `
addresses() { ip -o -4 addr show | grep -o '10\.9\.9\.[0-9]*' | tr '\n' ' '; }
pid() { systemctl show -P MainPID systemd-networkd; }
if [ -e /etc/pivot/machineconfig.json ]; then
	echo "@@second addresses $(addresses)"
	pivot verify && echo "@@second verified"
	exit
fi
systemctl start slow.service
before="pid $(pid), boot $(cat /proc/sys/kernel/random/boot_id)"
pivot apply --dry-run /etc/one.yaml
pivot apply --reboot=never /etc/one.yaml
# networkd answers the reload first, and has the address soon after.
until addresses | grep -q 10.9.9.1; do sleep 0.1; done
[ "$before" = "pid $(pid), boot $(cat /proc/sys/kernel/random/boot_id)" ] && echo "@@first the same process has $(addresses)"
pivot verify && echo "@@first verified"
pivot apply /etc/two.yaml
`

// slowService is a unit. Its reload prints a line and then hangs.
const slowService = "[Service]\nExecStart=/bin/sleep infinity\nExecReload=/bin/sh -c \"echo @@in the middle >/dev/console; sleep 600\"\n"

// inTheMiddle stops a machine while it reloads slowService.
func inTheMiddle(line string) bool { return strings.Contains(line, "@@in the middle") }

// changedLive changes the configuration of a running service without a reboot, and cuts the power in
// the middle of the next change. The next boot must finish that change before services start.
func changedLive(t *testing.T, l *bootlab.Lab) {
	config := func(address string, more string) []byte {
		return fmt.Appendf(nil, "spec:\n  config:\n    ignition: {version: 3.4.0}\n    storage:\n      files:\n"+
			"      - {path: /etc/systemd/network/10-guest.network.d/live.conf, contents: {source: \"data:,%%5BNetwork%%5D%%0AAddress=%s/32%%0A\"}}\n%s", address, more)
	}
	const rules = "files:\n- {path: /etc/systemd/network, actions: [{type: Reload, reload: {serviceName: systemd-networkd.service}}]}\n" +
		"- {path: /etc/slow, actions: [{type: Reload, reload: {serviceName: slow.service}}]}\n"
	files := append(bootlab.Typed("live", ". /etc/live.sh", "PathExists=/etc/live.sh"),
		vm.TreeFile{Path: "/etc/live.sh", Mode: 0o755, Content: []byte(liveScript)},
		vm.TreeFile{Path: "/etc/one.yaml", Mode: 0o644, Content: config("10.9.9.1", "")},
		vm.TreeFile{Path: "/etc/two.yaml", Mode: 0o644, Content: config("10.9.9.2", "      - {path: /etc/slow/conf}\n")},
		vm.TreeFile{Path: disruption.RulesPath, Mode: 0o644, Content: []byte(rules)},
		vm.TreeFile{Path: "/etc/systemd/system/slow.service", Mode: 0o644, Content: []byte(slowService)})
	m := machineWith(t, l, bootlab.Setup{Files: files})
	first := boot(t, m, vm.BootOptions{StopWhen: inTheMiddle})
	if first.Exit != vm.Stopped {
		t.Fatalf("the machine %s, want its power cut in the middle of a reload", first.Exit)
	}
	expectSaid(t, first,
		"/etc/systemd/network/10-guest.network.d/live.conf: reload systemd-networkd.service (rule for /etc/systemd/network)", "reboots: 0",
		"@@first the same process has 10.9.9.1", "@@first verified")
	root := vm.StateRoot + "/deploy/" + l.Guest.CommitA + ".0"
	if _, err := m.ReadFile(root + day2.LiveJournalPath); err != nil {
		t.Errorf("no journal after the power cut: %v", err)
	}
	second := boot(t, m, vm.BootOptions{})
	if second.Exit != vm.PoweredOff {
		t.Fatalf("the machine %s, want no reboot", second.Exit)
	}
	expectSaid(t, second, "finishing a change of the running system, which was interrupted", "@@second addresses 10.9.9.2", "@@second verified")
	if r := report(t, second); r.Version != "A.1" || r.Deployments != 1 || r.FailedUnits != "" || r.Status.Phase != string(pivot.PhaseDone) {
		t.Errorf("version %s, %d deployments, failed units %q, status %+v", r.Version, r.Deployments, r.FailedUnits, r.Status)
	}
	if _, err := m.ReadFile(root + day2.LiveJournalPath); err == nil {
		t.Error("the journal is still there")
	}
}
