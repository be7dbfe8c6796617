package pivot_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"machine-pivot/pivot"
)

// situation is one combination of Decide's inputs.
type situation struct {
	record pivot.Record
	facts  pivot.Facts
}

// situations returns all combinations.
func situations() []situation {
	var all []situation
	for _, phase := range []pivot.Phase{pivot.PhaseIdle, pivot.PhaseApplying, pivot.PhaseCommitted, pivot.PhaseTrial, pivot.PhaseDone, pivot.PhaseFailed, pivot.PhaseUndone, pivot.PhaseInterrupted} {
		for attempt := 0; attempt <= pivot.MaxAttempts; attempt++ {
			for i := range 32 {
				all = append(all, situation{
					record: pivot.Record{Phase: phase, Attempt: attempt},
					facts:  pivot.Facts{SameBoot: i&1 > 0, SameTarget: i&2 > 0, AtTarget: i&4 > 0, PendingAtTarget: i&8 > 0, TakenBack: i&16 > 0},
				})
			}
		}
	}
	return all
}

func (s situation) String() string {
	return fmt.Sprintf("%s/%d/%+v", s.record.Phase, s.record.Attempt, s.facts)
}

// TestDecideTable compares Decide with the table in docs/states.md, for all inputs.
func TestDecideTable(t *testing.T) {
	rows := documentedRows(t)
	used := map[int]bool{}
	for _, s := range situations() {
		i := 0
		for i < len(rows) && !rows[i].fits(s) {
			i++
		}
		if i == len(rows) {
			t.Fatalf("%v: no row of the table fits", s)
		}
		used[i] = true
		if got, want := pivot.Decide(s.record, s.facts), rows[i].decision(s); got != want {
			t.Errorf("%v: %+v, the table says %+v", s, got, want)
		}
	}
	for i := range rows {
		if !used[i] {
			t.Errorf("row %d of the table fits nothing", i+1)
		}
	}
}

// row is a row of the documented table, by column.
type row []string

func documentedRows(t *testing.T) (rows []row) {
	t.Helper()
	for _, cells := range statesTable(t, 9) {
		rows = append(rows, cells)
	}
	return rows
}

// statesTable returns the rows, without the header, of the table in docs/states.md that has the
// given number of columns.
func statesTable(t *testing.T, columns int) (rows [][]string) {
	t.Helper()
	data, err := os.ReadFile("../docs/states.md")
	if err != nil {
		t.Fatal(err)
	}
	head := true
	for line := range strings.Lines(string(data)) {
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		if len(cells) != columns {
			continue
		}
		if strings.HasPrefix(cells[0], "-") {
			head = false
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if !head {
			rows = append(rows, cells)
		}
	}
	if len(rows) == 0 {
		t.Fatalf("docs/states.md has no table with %d columns", columns)
	}
	return rows
}

func (r row) fits(s situation) bool {
	attempt := map[bool]string{true: "last", false: "earlier"}[s.record.Attempt >= pivot.MaxAttempts]
	for i, is := range []string{
		string(s.record.Phase), attempt,
		yesNo(s.facts.SameTarget), yesNo(s.facts.SameBoot), yesNo(s.facts.AtTarget), yesNo(s.facts.PendingAtTarget), yesNo(s.facts.TakenBack),
	} {
		if r[i] != "any" && r[i] != is {
			return false
		}
	}
	return true
}

func yesNo(b bool) string { return map[bool]string{true: "yes", false: "no"}[b] }

func (r row) decision(s situation) pivot.Decision {
	d := pivot.Decision{Action: pivot.Action(r[7]), Attempt: s.record.Attempt}
	switch r[8] {
	case "1":
		d.Attempt = 1
	case "+1":
		d.Attempt++
	}
	if d.Action == pivot.ActionApply {
		d.Attempt = max(d.Attempt, 1) // attempts count from 1
	}
	return d
}

// TestDecide (P2, P7, P24, D26) checks the promises, for all inputs.
func TestDecide(t *testing.T) {
	for _, s := range situations() {
		t.Run(s.String(), func(t *testing.T) { checkDecision(t, s.record, s.facts, pivot.Decide(s.record, s.facts)) })
	}
}

func checkDecision(t *testing.T, r pivot.Record, f pivot.Facts, d pivot.Decision) {
	if f.AtTarget != (d.Action == pivot.ActionClose) {
		t.Errorf("%v: close exactly when what runs is the target", d)
	}
	if d.Attempt > pivot.MaxAttempts {
		t.Errorf("%v: attempts are bounded", d)
	}
	if d.Action == pivot.ActionReboot && !(f.SameBoot && f.PendingAtTarget && r.Phase == pivot.PhaseCommitted) {
		t.Errorf("%v: a reboot alone needs a commit of this boot that the host confirms", d)
	}
	if (d.Action == pivot.ActionHold) != (f.TakenBack && !f.AtTarget) {
		t.Errorf("%v: hold exactly when somebody went back", d)
	}
	if d.Action == pivot.ActionGiveUp && !f.SameTarget {
		t.Errorf("%v: a new target is always tried", d)
	}
	if f.TakenBack {
		return
	}
	cameUpOld := r.Phase == pivot.PhaseCommitted && !f.SameBoot && f.SameTarget && !f.AtTarget
	if cameUpOld && d.Action == pivot.ActionApply && d.Attempt != r.Attempt+1 {
		t.Errorf("%v: a commit that did not hold counts", d)
	}
	if cameUpOld && r.Attempt >= pivot.MaxAttempts && d.Action != pivot.ActionGiveUp {
		t.Errorf("%v: no reboot loop", d)
	}
	if d.Action == pivot.ActionApply && d.Attempt < 1 {
		t.Errorf("%v: attempts count from 1", d)
	}
}
