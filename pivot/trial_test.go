package pivot_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/pivot"
)

// TestJudgeTrial (P59) compares JudgeTrial with the table in docs/dev/states.md, for all inputs.
func TestJudgeTrial(t *testing.T) {
	// Columns: what runs, by, phase, same boot, confirmed, entered, state, why.
	rows, used := statesTable(t, 8), map[int]bool{}
	for what, booted := range map[string]string{"the old system": "old", "the one on trial": "new", "another": "other"} {
		for _, phase := range []pivot.Phase{pivot.PhaseCommitted, pivot.PhaseTrial, pivot.PhaseFailed} {
			for i := range 16 {
				sameBoot, confirmed, entered := i&1 > 0, i&2 > 0, i&4 > 0
				by := map[bool]pivot.Confirm{true: pivot.ConfirmProof, false: pivot.ConfirmAuto}[i&8 > 0]
				r := pivot.JournalContent{Phase: phase, Trial: &pivot.Trial{Old: "old", New: "new", Confirm: by, Confirmed: confirmed, Entered: entered}}
				if phase == pivot.PhaseFailed {
					r.Error = pivot.FailureOf(errors.New("x"))
				}
				is := []string{what, string(by), string(phase), yesNo(sameBoot), yesNo(confirmed), yesNo(entered)}
				n := 0
				for n < len(rows) && !fitsAll(rows[n], is) {
					n++
				}
				if n == len(rows) {
					t.Fatalf("%q: no row of the table fits", is)
				}
				used[n] = true
				state := pivot.JudgeTrial(r, booted, sameBoot)
				why := ""
				if state == pivot.TrialOver {
					why = pivot.WhyTrialOver(r, booted)
				}
				if want := rows[n][6]; string(state) != want {
					t.Errorf("%q: %s, the table says %s", is, state, want)
				}
				if want := rows[n][7]; !strings.Contains(why, want) || want == "" && why != "" {
					t.Errorf("%q: why %q, the table says %q", is, why, want)
				}
			}
		}
	}
	for i := range rows {
		if !used[i] {
			t.Errorf("row %d of the table fits nothing", i+1)
		}
	}
	if got := pivot.JudgeTrial(pivot.JournalContent{Phase: pivot.PhaseCommitted}, "old", false); got != pivot.TrialNone {
		t.Errorf("without a trial: %s", got)
	}
	// After a crash right after the commit, the journal does not name the new deployment.
	unnamed := pivot.JournalContent{Phase: pivot.PhaseCommitted, Trial: &pivot.Trial{Old: "old"}}
	for booted, want := range map[string]pivot.TrialState{"new": pivot.TrialRuns, "old": pivot.TrialOver} {
		if got := pivot.JudgeTrial(unnamed, booted, false); got != want {
			t.Errorf("%s runs: %s, want %s", booted, got, want)
		}
	}
}

func fitsAll(row, is []string) bool {
	for i := range is {
		if row[i] != "" && row[i] != is[i] {
			return false
		}
	}
	return true
}

// TestFindNew: the deployment on trial is found by the deployments that there were before its commit.
func TestFindNew(t *testing.T) {
	for name, c := range map[string]struct{ before, all, want string }{
		"nothing was committed":                   {"A.0 B.0", "A.0 B.0", ""},
		"it is the default":                       {"A.0 B.0", "C.0 A.0", "C.0"},
		"the old one is the default again":        {"A.0 B.0", "A.0 C.0", "C.0"},
		"with the ID of one that was there":       {"A.0 B.0", "B.0 A.0", "B.0"},
		"a third one was the default":             {"D.0 A.0", "D.0 A.0", ""},
		"a third one is the default":              {"D.0 A.0", "D.0 C.0 A.0", "C.0"},
		"an older journal":                        {"", "C.0 A.0", "C.0"},
		"an older journal, the old one's default": {"", "A.0 C.0", ""},
		"no deployments":                          {"A.0", "", ""},
	} {
		r := pivot.JournalContent{Trial: &pivot.Trial{Old: "A.0"}, Before: strings.Fields(c.before)}
		r.FindNew(strings.Fields(c.all))
		if r.Trial.New != c.want {
			t.Errorf("%s: %q, want %q", name, r.Trial.New, c.want)
		}
	}
}

// TestTrialStamp (P59): the stamp exists exactly as long as the journal has a trial.
func TestTrialStamp(t *testing.T) {
	root := t.TempDir()
	journal := pivot.JournalIn(root)
	stamp := filepath.Join(root, pivot.StateDir, pivot.TrialStamp)
	for _, trial := range []*pivot.Trial{nil, {Old: "x"}, {Old: "x", Entered: true}, nil, {Old: "x", Confirm: pivot.ConfirmProof}, nil, nil} {
		if err := journal.Save(pivot.JournalContent{Phase: pivot.PhaseCommitted, Trial: trial}); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(stamp); (err == nil) != (trial != nil) {
			t.Errorf("trial %+v, stamp %v", trial, err)
		}
	}
}
