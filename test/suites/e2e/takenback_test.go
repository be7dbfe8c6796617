package e2e_test

import (
	"strings"
	"testing"

	"machine-pivot/pivot"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// takenBack chooses the old system in the boot menu of a machine that has reached its target.
// The machine must stay there, with kubelet, and the new system remains the default.
func takenBack(t *testing.T, l *bootlab.Lab, m *vm.Machine) {
	t.Helper()
	chosen := entry(t, m)
	requests := l.Registry.Requests()
	back := boot(t, m, vm.BootOptions{Entry: 1})
	if back.Exit != vm.PoweredOff || !back.Said("somebody went back") || !back.Said("pivot firstboot --again") {
		t.Fatalf("the machine %s, want that it says that somebody went back, and no reboot", back.Exit)
	}
	r := report(t, back)
	if r.Version != "A.1" || r.Deployments != 2 || l.Registry.Requests() != requests {
		t.Errorf("version %s, %d deployments, %d requests to the registry", r.Version, r.Deployments, l.Registry.Requests()-requests)
	}
	if r.Unit.ActiveState != "active" || r.Kubelet.ActiveState != "active" || r.Encapsulated || !r.Closed {
		t.Errorf("unit %+v, kubelet %+v, file there %v, .bak there %v", r.Unit, r.Kubelet, r.Encapsulated, r.Closed)
	}
	if r.Status.Phase != string(pivot.PhaseUndone) || !strings.Contains(strings.Join(r.Status.Notes, ""), "somebody went back") {
		t.Errorf("status %+v, want undone and why", r.Status)
	}
	if next := entry(t, m); next != chosen {
		t.Errorf("the next boot is %+v, want %+v", next, chosen)
	}
}
