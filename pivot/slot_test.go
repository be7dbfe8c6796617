package pivot_test

import (
	"testing"

	"machine-pivot/internal/pid1"
	"machine-pivot/pivot"
)

// TestJudgeSlot (P79) compares JudgeSlot with the table in docs/dev/states.md, for all inputs.
func TestJudgeSlot(t *testing.T) {
	// Columns: trial, phase, that boot, pending, used, use.
	rows, fitting := statesTable(t, 6), map[int]bool{}
	for _, phase := range []pivot.Phase{pivot.PhaseIdle, pivot.PhaseApplying, pivot.PhaseCommitted, pivot.PhaseTrial, pivot.PhaseDone, pivot.PhaseFailed, pivot.PhaseUndone, pivot.PhaseInterrupted} {
		for i := range 16 {
			trial, used, runs, pending := i&1 > 0, i&2 > 0, i&4 > 0, i&8 > 0
			r := pivot.JournalContent{Phase: phase, BootID: "written", Slot: &pivot.Slot{Boot: "asked", Phase: "written"}}
			if used {
				r.Slot.Phase = "before"
			}
			if trial {
				r.Trial = &pivot.Trial{}
			}
			now := pid1.StartID("later")
			if runs {
				now = "written"
			}
			is := []string{
				yesNo(trial), map[bool]string{true: "committed", false: "another than committed"}[phase == pivot.PhaseCommitted],
				map[bool]string{true: "runs", false: "over"}[runs], yesNo(pending), yesNo(used),
			}
			n := 0
			for n < len(rows) && !fitsAll(rows[n], is) {
				n++
			}
			if n == len(rows) {
				t.Fatalf("%q: no row of the table fits", is)
			}
			fitting[n] = true
			if got, want := string(pivot.JudgeSlot(r, now, pending)), rows[n][5]; got != want {
				t.Errorf("%q: %s, the table says %s", is, got, want)
			}
		}
	}
	if r := (pivot.JournalContent{Phase: pivot.PhaseCommitted, BootID: "a", Slot: &pivot.Slot{Boot: "a", Phase: "a"}}); pivot.JudgeSlot(r, "b", false) != pivot.SlotProves {
		t.Error("what was written in the boot that asked may have been written since")
	}
	for i := range rows {
		if !fitting[i] {
			t.Errorf("row %d of the table fits nothing", i+1)
		}
	}
}
