package pivot_test

import (
	"testing"

	"machine-pivot/pivot"
)

// TestJudgeSlot (P79) holds slots in each situation against the table in docs/states.md.
func TestJudgeSlot(t *testing.T) {
	// Trial, phase, same boot as asked, that boot, pending, use.
	rows, used := statesTable(t, 6), map[int]bool{}
	for _, phase := range []pivot.Phase{pivot.PhaseIdle, pivot.PhaseApplying, pivot.PhaseCommitted, pivot.PhaseTrial, pivot.PhaseDone, pivot.PhaseFailed, pivot.PhaseUndone} {
		for i := range 16 {
			trial, same, runs, pending := i&1 > 0, i&2 > 0, i&4 > 0, i&8 > 0
			r := pivot.Record{Phase: phase, BootID: "written", Slot: &pivot.Slot{Boot: "asked"}}
			if same {
				r.Slot.Boot = "written"
			}
			if trial {
				r.Trial = &pivot.Trial{}
			}
			now := "later"
			if runs {
				now = "written"
			}
			is := []string{
				yesNo(trial), map[bool]string{true: "committed", false: "another than committed"}[phase == pivot.PhaseCommitted],
				yesNo(same), map[bool]string{true: "runs", false: "over"}[runs], yesNo(pending),
			}
			n := 0
			for n < len(rows) && !fitsAll(rows[n], is) {
				n++
			}
			if n == len(rows) {
				t.Fatalf("%q: no row of the table fits", is)
			}
			used[n] = true
			if got, want := string(pivot.JudgeSlot(r, now, pending)), rows[n][5]; got != want {
				t.Errorf("%q: %s, the table says %s", is, got, want)
			}
		}
	}
	for i := range rows {
		if !used[i] {
			t.Errorf("row %d of the table fits nothing", i+1)
		}
	}
}
