package crash_test

import (
	"testing"

	"machine-pivot/test/crash"
	"machine-pivot/test/need"
)

// applied is what sweeps a machine that goes from one MachineConfig to another, and to another
// image, with units, /var, a password, removals, and something that is left out.
func applied(t *testing.T, variants ...crash.Variant) *sweep {
	t.Helper()
	need.Root(t) // there are owners
	need.Ostree(t)
	repo, err := crash.NewSystems(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return newSweep(t, append([]crash.Variant{crash.Applied(repo)}, variants...))
}

// TestSweepOfApply (P55, P57, P58) crashes such a machine: each system that runs, or would be
// booted next, is the one MachineConfig's or the other's, entry by entry.
func TestSweepOfApply(t *testing.T) {
	applied(t).sampled("on which a MachineConfig is applied", 11)
}

// TestSweepOfApplyNotices (P55): the sweep finds a program that records a MachineConfig
// before it is committed.
func TestSweepOfApplyNotices(t *testing.T) {
	applied(t, crash.RecordedTooEarly).notices("a mixture: a has the record")
}
