package crash_test

import (
	"testing"

	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/crash"
)

// TestSweepOfLiveVar (P56) crashes, at each effect, a change of the running system that includes
// entries outside of /etc and a password. Services start with the old or the new configuration,
// complete. In the end everything is new or, if a service refuses, old.
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
			s.sampled(machine.name, 11)
		})
	}
}

// TestSweepOfLiveVarNotices (P56): the sweep finds a change outside of /etc without a journal.
func TestSweepOfLiveVarNotices(t *testing.T) {
	need.Root(t)
	newSweep(t, []crash.Variant{crash.ChangedOutside, crash.Unjournaled}).notices("a mixture")
}
