package e2e_test

import (
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/settings"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// byKexec runs the main job on a machine that reboots by kexec, so that one power-on has two boots.
// The MachineConfig enables one of the units that only the image's layers have, and disables
// another one that the layers enable.
func byKexec(t *testing.T, l *bootlab.Lab) {
	want := l.Wanted()
	want.Unit, want.LayerUnits = true, true
	var err error
	if want.Image, err = l.Derived(t.Context()); err != nil {
		t.Fatal(err)
	}
	m := machineWith(t, l, bootlab.Setup{Encapsulated: encapsulated(t, want), Files: []vm.TreeFile{
		{Path: settings.Path, Mode: 0o644, Content: []byte("mode=system\nreboot-method=kexec\n")},
	}})
	only := boot(t, m, vm.BootOptions{})
	expectArrived(t, only, want)
	expectProven(t, m, want)
	if !only.Said(bootlab.EnabledUnitSays) || only.Said(bootlab.DisabledUnitSays) {
		t.Errorf("the image's units: the enabled one ran: %v; the disabled one ran: %v", only.Said(bootlab.EnabledUnitSays), only.Said(bootlab.DisabledUnitSays))
	}

	started := slices.IndexFunc(only.Serial, func(l vm.SerialLine) bool { return strings.Contains(l.Text, "Starting new kernel") })
	kubelet := slices.IndexFunc(only.Serial, func(l vm.SerialLine) bool { return strings.Contains(l.Text, "@@kubelet started") })
	if started < 0 || kubelet < started {
		t.Errorf("line %d starts another kernel, line %d kubelet", started, kubelet)
	} else {
		t.Logf("the next kernel starts after %.1f s", only.Serial[started].At.Seconds())
	}
	if ids := bootIDs(t, m); len(ids) != 2 || ids[1] != report(t, only).BootID {
		t.Errorf("boots %q, want two, the last of them %s", ids, report(t, only).BootID)
	}
}

// bootIDs returns the IDs of the boots in which the machine's transaction ran.
func bootIDs(t *testing.T, m *vm.Machine) []string {
	t.Helper()
	var ids []string
	for _, p := range journal(t, m).Phases {
		ids = append(ids, string(p.BootID))
	}
	return slices.Compact(ids)
}
