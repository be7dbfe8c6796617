package crash_test

import (
	"slices"
	"testing"

	"machine-pivot/test/worlds/crash"
)

// TestTrialCutBeforeOldIsDefault (P59): the machine crashes after the commit of a system on trial
// and before the old one is the default again. The new system then boots as the default, and is
// still on trial: its first effect is to make the old one the default, and its checks decide the
// outcome.
func TestTrialCutBeforeOldIsDefault(t *testing.T) {
	for name, outcome := range map[string]crash.Outcome{"confirmed": crash.Confirmed, "fails": crash.TimedOut, "panics": crash.Panics} {
		for _, loss := range []crash.Loss{crash.Leave, crash.Reset, crash.PowerCut, crash.Scramble} {
			t.Run(name+", "+loss.String(), func(t *testing.T) {
				s := newSweep(t, []crash.Variant{crash.Tried(outcome)})
				s.reboots = map[crash.Outcome]int{crash.Confirmed: 1, crash.TimedOut: 2, crash.Panics: 1}[outcome]
				lives := []life{{}}
				s.runAll(lives)
				commit := slices.IndexFunc(lives[0].effects, func(e crash.Effect) bool { return e.Name == "finalize" }) + 1
				lives = []life{{points: []crash.Point{{Effect: commit, When: crash.After, Loss: loss}}}}
				s.runAll(lives)
				if len(s.failures) > 0 {
					t.Fatal(s.failures)
				}
				next := lives[0].effects[commit:]
				if hold := slices.IndexFunc(next, func(e crash.Effect) bool { return e.Name == "set default" }); outcome != crash.Panics && hold != 0 {
					t.Errorf("after the power cut: %v, want that the old system is made the default first", next)
				}
			})
		}
	}
}
