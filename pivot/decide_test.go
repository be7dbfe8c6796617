package pivot_test

import (
	"fmt"
	"testing"

	"machine-pivot/pivot"
)

// TestDecide walks every combination of phase, attempt and facts.
func TestDecide(t *testing.T) {
	bools := []bool{false, true}
	for _, phase := range []pivot.Phase{pivot.Idle, pivot.Applying, pivot.Committed, pivot.Done, pivot.Failed} {
		for attempt := 0; attempt <= pivot.MaxAttempts; attempt++ {
			for i := range 16 {
				f := pivot.Facts{SameBoot: bools[i&1], SameTarget: bools[i>>1&1], AtTarget: bools[i>>2&1], PendingAtTarget: bools[i>>3&1]}
				r := pivot.Record{Phase: phase, Attempt: attempt}
				t.Run(fmt.Sprintf("%s/%d/%+v", phase, attempt, f), func(t *testing.T) {
					checkDecision(t, r, f, pivot.Decide(r, f))
				})
			}
		}
	}
}

// checkDecision states the promises, not the code.
func checkDecision(t *testing.T, r pivot.Record, f pivot.Facts, d pivot.Decision) {
	if f.AtTarget != (d.Action == pivot.Close) {
		t.Errorf("%v: close exactly when what runs is the target", d)
	}
	if d.Attempt > pivot.MaxAttempts {
		t.Errorf("%v: attempts are bounded", d)
	}
	if d.Action == pivot.Reboot && !(f.SameBoot && f.PendingAtTarget && r.Phase == pivot.Committed) {
		t.Errorf("%v: a reboot alone needs a commit of this boot that the host confirms", d)
	}
	if d.Action == pivot.GiveUp && !f.SameTarget {
		t.Errorf("%v: a new target is always tried", d)
	}
	cameUpOld := r.Phase == pivot.Committed && !f.SameBoot && f.SameTarget && !f.AtTarget
	if cameUpOld && d.Action == pivot.Apply && d.Attempt != r.Attempt+1 {
		t.Errorf("%v: a commit that did not hold counts", d)
	}
	if cameUpOld && r.Attempt >= pivot.MaxAttempts && d.Action != pivot.GiveUp {
		t.Errorf("%v: no reboot loop", d)
	}
	if d.Action == pivot.Apply && d.Attempt < 1 {
		t.Errorf("%v: attempts count from 1", d)
	}
}
