package crash_test

import (
	"testing"

	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/crash"
)

// applied returns a sweep of a machine that changes to another MachineConfig and another image,
// with units, /var, a password, removals, and a field that cannot be applied.
func applied(t *testing.T, variants ...crash.Variant) *sweep {
	t.Helper()
	need.Root(t) // owners are checked
	need.Ostree(t)
	repo, err := crash.NewSystems(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return newSweep(t, append([]crash.Variant{crash.Applied(repo)}, variants...))
}

// TestSweepOfApply (P55, P57, P58) crashes that machine: each system that runs or is the default
// has exactly one of the two MachineConfigs, checked entry by entry.
func TestSweepOfApply(t *testing.T) {
	applied(t).sampled("on which a MachineConfig is applied", 11)
}

// TestSweepOfApplyNotices (P55): the sweep finds a program that records a MachineConfig before the
// commit.
func TestSweepOfApplyNotices(t *testing.T) {
	applied(t, crash.RecordedTooEarly).notices("a mixture: a has the record")
}
