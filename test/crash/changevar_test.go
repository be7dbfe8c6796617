package crash_test

import (
	"testing"

	"machine-pivot/test/crash"
	"machine-pivot/test/need"
)

// TestSweepOfLiveVar (P56) crashes a change of the running system that is also outside of /etc,
// and of a password, at each effect: services start with the old or the new, and in the end all
// is new, or, where a service refuses, old.
func TestSweepOfLiveVar(t *testing.T) {
	need.Root(t)
	for _, machine := range []struct {
		name    string
		variant crash.Variant
	}{
		{"a change of the running system and of what is outside of its etc", crash.ChangedOutside},
		{"the same, which a service refuses", crash.RefusedOutside},
	} {
		t.Run(machine.name, func(t *testing.T) {
			s := newSweep(t, []crash.Variant{machine.variant})
			s.reboots = 0
			s.sampled(machine.name, 5)
		})
	}
}

// TestSweepOfLiveVarNotices (P56): the sweep finds a change outside of /etc that has no journal.
func TestSweepOfLiveVarNotices(t *testing.T) {
	need.Root(t)
	newSweep(t, []crash.Variant{crash.ChangedOutside, crash.Unjournaled}).notices("a mixture")
}
