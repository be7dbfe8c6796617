package slot_test

import (
	"os"
	"strings"
	"testing"

	"machine-pivot/day2/slot"
	"machine-pivot/internal/pid1"
	"machine-pivot/pivot"
)

// TestJudge (P79) compares Judge with the table in docs/dev/states.md, for all inputs.
func TestJudge(t *testing.T) {
	// Columns: trial, phase, that boot, pending, used, use.
	rows, fitting := statesTable(t), map[int]bool{}
	for _, phase := range []pivot.Phase{pivot.PhaseIdle, pivot.PhaseApplying, pivot.PhaseCommitted, pivot.PhaseTrial, pivot.PhaseDone, pivot.PhaseFailed, pivot.PhaseUndone, pivot.PhaseInterrupted} {
		for i := range 16 {
			trial, used, runs, pending := i&1 > 0, i&2 > 0, i&4 > 0, i&8 > 0
			r, s := pivot.JournalContent{Phase: phase, BootID: "written"}, slot.Slot{Boot: "asked", Phase: "written"}
			if used {
				s.Phase = "before"
			}
			if trial {
				r.Features = map[string]pivot.Part{"a": {Holds: true}}
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
			for n < len(rows) && !fits(rows[n], is) {
				n++
			}
			if n == len(rows) {
				t.Fatalf("%q: no row of the table fits", is)
			}
			fitting[n] = true
			if got, want := string(s.Judge(r, now, pending)), rows[n][5]; got != want {
				t.Errorf("%q: %s, the table says %s", is, got, want)
			}
		}
	}
	if r, s := (pivot.JournalContent{Phase: pivot.PhaseCommitted, BootID: "a"}), (slot.Slot{Boot: "a", Phase: "a"}); s.Judge(r, "b", false) != slot.Proves {
		t.Error("what was written in the boot that asked may have been written since")
	}
	for i := range rows {
		if !fitting[i] {
			t.Errorf("row %d of the table fits nothing", i+1)
		}
	}
}

// statesTable returns the rows, without the header, of the table of slots in docs/dev/states.md.
func statesTable(t *testing.T) (rows [][]string) {
	t.Helper()
	data, err := os.ReadFile("../../docs/dev/states.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(data), "| trial | phase | that boot | pending | used | use |\n|---|---|---|---|---|---|\n")
	if !found {
		t.Fatal("docs/dev/states.md has no table of slots")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	for line := range strings.SplitSeq(table, "\n") {
		rows = append(rows, strings.Split(strings.Trim(line, "| "), " | "))
	}
	return rows
}

func yesNo(b bool) string { return map[bool]string{true: "yes", false: "no"}[b] }

func fits(row, is []string) bool {
	for i := range is {
		if row[i] != "" && row[i] != is[i] {
			return false
		}
	}
	return true
}
