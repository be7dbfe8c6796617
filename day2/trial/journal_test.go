package trial_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/day2/trial"
	"machine-pivot/pivot"
)

// TestJudge (P59) compares Judge with the table in docs/dev/states.md, for all inputs.
func TestJudge(t *testing.T) {
	// Columns: what runs, by, phase, same boot, confirmed, entered, state, why.
	rows, used := statesTable(t), map[int]bool{}
	for what, booted := range map[string]string{"the old system": "old", "the one on trial": "new", "another": "other"} {
		for _, phase := range []pivot.Phase{pivot.PhaseCommitted, pivot.PhaseTrial, pivot.PhaseFailed} {
			for i := range 16 {
				sameBoot, confirmed, entered := i&1 > 0, i&2 > 0, i&4 > 0
				by := map[bool]trial.Confirm{true: trial.ConfirmProof, false: trial.ConfirmAuto}[i&8 > 0]
				r := pivot.JournalContent{Phase: phase}
				tried := &trial.Trial{Old: "old", New: "new", Confirm: by, Confirmed: confirmed, Entered: entered}
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
				state := tried.Judge(phase, booted, sameBoot)
				why := ""
				if state == trial.Over {
					why = tried.WhyOver(r, booted)
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
	if got := (*trial.Trial)(nil).Judge(pivot.PhaseCommitted, "old", false); got != trial.None {
		t.Errorf("without a trial: %s", got)
	}
	// After a crash right after the commit, the journal does not name the new deployment.
	unnamed := trial.Trial{Old: "old"}
	for booted, want := range map[string]trial.State{"new": trial.Runs, "old": trial.Over} {
		if got := unnamed.Judge(pivot.PhaseCommitted, booted, false); got != want {
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
		tried := trial.Trial{Old: "A.0"}
		tried.FindNew(strings.Fields(c.before), strings.Fields(c.all))
		if tried.New != c.want {
			t.Errorf("%s: %q, want %q", name, tried.New, c.want)
		}
	}
}

// TestStamp (P59): the stamp exists exactly as long as the journal has a trial.
func TestStamp(t *testing.T) {
	root := t.TempDir()
	journal := pivot.JournalIn(root)
	stamp := filepath.Join(root, pivot.StateDir, trial.Name)
	for _, tried := range []*trial.Trial{nil, {Old: "x"}, {Old: "x", Entered: true}, nil, {Old: "x", Confirm: trial.ConfirmProof}, nil, nil} {
		r := pivot.JournalContent{Phase: pivot.PhaseCommitted}
		if tried != nil {
			if err := tried.KeepIn(&r); err != nil {
				t.Fatal(err)
			}
		}
		if err := journal.Save(r); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(stamp); (err == nil) != (tried != nil) {
			t.Errorf("trial %+v, stamp %v", tried, err)
		}
	}
}

// statesTable returns the rows, without the header, of the table of trials in docs/dev/states.md.
func statesTable(t *testing.T) (rows [][]string) {
	t.Helper()
	data, err := os.ReadFile("../../docs/dev/states.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(data), "| what runs | by | phase | same boot | confirmed | entered | state | why |\n|---|---|---|---|---|---|---|---|\n")
	if !found {
		t.Fatal("docs/dev/states.md has no table of trials")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	for line := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	return rows
}

func yesNo(b bool) string { return map[bool]string{true: "yes", false: "no"}[b] }
