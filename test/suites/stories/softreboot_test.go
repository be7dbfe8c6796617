package stories_test

import (
	"strings"
	"testing"

	"machine-pivot/day2"
	"machine-pivot/internal/fault"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/rpmostree"
)

// TestSoftReboot (P90): a soft reboot into what was committed proves the commit like a boot does, although the
// kernel's boot ID stays. What an earlier start has left in /run, which stays too, does not count.
func TestSoftReboot(t *testing.T) {
	h := hostdir.New(t)
	h.InstallRpmOstree(rpmostree.Control{}) // can roll back
	r := day2.Rebase{Machine: newMachine(t, h), Image: h.Image}
	if _, err := r.Run(t.Context(), day2.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	expectStatusAt(t, h, pivot.PhaseCommitted)
	before, err := h.Start()
	must(t, err)
	h.SoftReboot()
	after, err := h.Start()
	must(t, err)
	if before == after || before.Boot() != after.Boot() || !after.Soft() {
		t.Errorf("the starts %s and %s are not two of one kernel", before, after)
	}
	expectStatusAt(t, h, pivot.PhaseDone)
	m := newMachine(t, h)
	if differences, err := m.Verify(t.Context()); err != nil || len(differences) > 0 {
		t.Errorf("it differs: %v, %v", differences, err)
	}
	if s, err := m.Status(t.Context()); err != nil || s.Start != after || s.LastCommand != nil {
		t.Errorf("status of start %s with last command %+v, %v", s.Start, s.LastCommand, err)
	}
	// A soft reboot into the old system is none into the commit.
	back := day2.Rollback{Machine: newMachine(t, h)}
	must(t, back.Run(t.Context()))
	h.SoftReboot()
	expectStatusAt(t, h, pivot.PhaseDone)
	if h.Version() == "B.2" {
		t.Error("the new system runs after the rollback")
	}
}

// TestSoftRebootOfAnotherCount: a systemd that does not count soft reboots, or forgets it, makes no system that runs
// undone.
func TestSoftRebootOfAnotherCount(t *testing.T) {
	h := hostdir.New(t)
	r := day2.Rebase{Machine: newMachine(t, h), Image: h.Image}
	if _, err := r.Run(t.Context(), day2.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	h.SoftReboot()
	h.SoftReboots = func() (uint32, error) { return 0, nil }
	expectStatusAt(t, h, pivot.PhaseDone)
}

// TestSlotOfSoftReboot: the slot of the fleet's lock is kept until the soft reboot, and given back after it.
func TestSlotOfSoftReboot(t *testing.T) {
	m := newMember(t)
	machine := m.newMachine()
	r := day2.Rebase{Machine: machine, Image: m.Image, Reboot: true}
	_, err := r.Run(stoppedByReboot(t, machine, m.Host), day2.RunOptions{})
	must(t, err)
	if err := m.release(); !fault.KindOf(err).Transient() || !strings.Contains(err.Error(), "waits for its reboot") {
		t.Errorf("before the soft reboot: %v", err)
	}
	m.expectSlot(true, "pre-reboot")
	m.SoftReboot()
	m.health = "failed"
	if err := m.release(); !fault.KindOf(err).Transient() || !strings.Contains(err.Error(), "unit a.service is failed") {
		t.Errorf("before it is healthy: %v", err)
	}
	m.expectSlot(true, "")
	m.health = "active"
	must(t, m.release())
	m.expectSlot(false, "steady-state")
}
