package crash_test

import (
	"testing"

	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/crash"
)

// rolledBack returns a sweep of the machine of applied that is rolled back to its first MachineConfig.
func rolledBack(t *testing.T, variants ...crash.Variant) *sweep {
	t.Helper()
	need.Root(t) // owners are checked
	need.Ostree(t)
	repo, err := crash.NewSystems(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := newSweep(t, append([]crash.Variant{crash.RolledBack(repo)}, variants...))
	s.reboots = 2
	return s
}

// TestSweepOfRollback (P26) crashes a machine on which one MachineConfig replaces another and is rolled back. Each
// system that can boot has exactly one of the two, and the one that runs is judged by the MachineConfig that it
// records.
func TestSweepOfRollback(t *testing.T) {
	s := rolledBack(t)
	s.keyStep = 5
	s.sampled("on which a MachineConfig is applied and rolled back", 31)
}

// TestSweepOfRollbackNotices: the sweep finds a program that changes the next boot before its
// journal, and one that judges the machine by the newest MachineConfig after a rollback.
func TestSweepOfRollbackNotices(t *testing.T) {
	for name, broken := range map[string]struct {
		variant crash.Variant
		want    string
	}{
		"default before the journal":         {crash.DefaultBeforeJournal, "the first system runs again, and is judged by b"},
		"judged by the newest MachineConfig": {crash.JudgedByNewest, "the first system runs again, and is judged by b"},
	} {
		t.Run(name, func(t *testing.T) { rolledBack(t, broken.variant).notices(broken.want) })
	}
}
