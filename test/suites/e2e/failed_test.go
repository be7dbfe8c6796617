package e2e_test

import (
	"bytes"
	"strings"
	"testing"

	"machine-pivot/firstboot"
	"machine-pivot/internal/settings"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// failedScript does what docs/failed.md says, after it has tried too early more often than systemd
// allows of a unit with its default limit.
const failedScript = `
field() { pivot status | sed -n "s/^$1 *//p"; }
echo "@@phase $(field phase): $(field error)"
for try in 1 2 3 4 5 6 7 8 9 10 11 12; do
	systemctl restart pivot-firstboot && exit 1
done
echo "@@restarted $(systemctl show -P Result pivot-firstboot)"
pivot wait || echo "@@waited $?"
sed -i "s/\"fips\":true/\"fips\":false/" ` + firstboot.EncapsulatedPath + `
pivot plan >/dev/null && echo "@@planned"
systemctl restart pivot-firstboot
pivot wait
`

// failurePage takes the four steps of docs/failed.md on a machine with a refused MachineConfig. They must lead to the
// new system.
func failurePage(t *testing.T, l *bootlab.Lab) {
	want := l.Wanted()
	files := append(bootlab.Typed("failed", "/bin/sh /etc/failed.sh", "PathExists="+firstboot.EncapsulatedPath),
		vm.TreeFile{Path: "/etc/failed.sh", Mode: 0o644, Content: []byte(failedScript)})
	m := machineWith(t, l, bootlab.Setup{Encapsulated: withFIPS(t, want), Files: files})
	first := boot(t, m, vm.BootOptions{})
	for _, line := range []string{
		"@@phase failed: cannot pivot this machine: spec.fips is true", "@@restarted exit-code", "@@waited 3", "@@planned",
	} {
		if !first.Said(line) {
			t.Errorf("the machine did not say %q", line)
		}
	}
	expectPivot(t, first)
	expectArrived(t, boot(t, m, vm.BootOptions{}), want)
}

// withFIPS returns an encapsulated MachineConfig that the machine refuses.
func withFIPS(t *testing.T, want bootlab.Want) []byte {
	t.Helper()
	config := encapsulated(t, want)
	refused := bytes.Replace(config, []byte(`"fips":false`), []byte(`"fips":true`), 1)
	if bytes.Equal(refused, config) {
		t.Fatalf("there is no FIPS mode in %s", config)
	}
	return refused
}

// emergencyTyped is what docs/failed.md says for the emergency shell.
const emergencyTyped = `pivot status | sed -n "s/^error */@@error /p"; mount -o remount,rw /sysroot; ` +
	`sed -i "s/\"fips\":true/\"fips\":false/" /sysroot` + firstboot.EncapsulatedPath + `; systemctl restart pivot-initramfs` + "\n"

// emergencyShell does what docs/failed.md says in the emergency shell of a first boot in the
// initramfs.
func emergencyShell(t *testing.T, l *bootlab.Lab) {
	want := l.Wanted()
	m := machineWith(t, l, bootlab.Setup{Encapsulated: withFIPS(t, want), Mode: settings.ModeInitramfs})
	prompts := []struct{ text, typed string }{{"Control-D to continue", "\n"}, {"# ", emergencyTyped}}
	first := boot(t, m, vm.BootOptions{Types: func(text string) (typed string) {
		if len(prompts) > 0 && strings.Contains(text, prompts[0].text) {
			typed, prompts = prompts[0].typed, prompts[1:]
		}
		return typed
	}})
	if !first.Said("@@error cannot pivot this machine: spec.fips is true") {
		t.Error("pivot status did not say why")
	}
	expectPivotIn(t, first, settings.ModeInitramfs)
	expectArrived(t, boot(t, m, vm.BootOptions{}), want)
}
