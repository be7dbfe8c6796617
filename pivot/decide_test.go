package pivot_test

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"machine-pivot/pivot"
)

// situation is one combination of Decide's inputs.
type situation struct {
	journal pivot.JournalContent
	facts   pivot.Facts
}

// input is one input of Decide: how many values it has, and how to set the ith one.
type input struct {
	values int
	set    func(s *situation, i int)
}

// inputs returns all inputs of Decide.
func inputs() []input {
	phases := []pivot.Phase{pivot.PhaseIdle, pivot.PhaseApplying, pivot.PhaseCommitted, pivot.PhaseTrial, pivot.PhaseDone, pivot.PhaseFailed, pivot.PhaseUndone, pivot.PhaseInterrupted}
	attempts := []int{0, 1, pivot.MaxAttempts}
	reaches := []pivot.Reach{pivot.ReachNone, pivot.ReachRunning, pivot.ReachBoot}
	all := []input{
		{len(phases), func(s *situation, i int) { s.journal.Phase = phases[i] }},
		{len(attempts), func(s *situation, i int) { s.journal.Attempt = attempts[i] }},
		{int(pivot.DemandStop) + 1, func(s *situation, i int) { s.facts.Demand = pivot.Demand(i) }},
		{len(reaches), func(s *situation, i int) { s.facts.Reach = reaches[i] }},
	}
	for _, flag := range []func(*pivot.Facts) *bool{
		func(f *pivot.Facts) *bool { return &f.Planned }, func(f *pivot.Facts) *bool { return &f.SameBoot },
		func(f *pivot.Facts) *bool { return &f.SameTarget }, func(f *pivot.Facts) *bool { return &f.AtTarget },
		func(f *pivot.Facts) *bool { return &f.PendingAtTarget }, func(f *pivot.Facts) *bool { return &f.ByHand },
		func(f *pivot.Facts) *bool { return &f.NeverReboot },
	} {
		all = append(all, input{2, func(s *situation, i int) { *flag(&s.facts) = i == 1 }})
	}
	return all
}

// situations yields all combinations of the inputs' values, one after the other: together they would take gigabytes.
func situations() iter.Seq[*situation] {
	return func(yield func(*situation) bool) {
		combine(new(situation), inputs(), yield)
	}
}

// combine yields s with all combinations of the inputs' values, until it need not.
func combine(s *situation, inputs []input, yield func(*situation) bool) (more bool) {
	if len(inputs) == 0 {
		return yield(s)
	}
	for i := range inputs[0].values {
		inputs[0].set(s, i)
		if !combine(s, inputs[1:], yield) {
			return false
		}
	}
	return true
}

func (s *situation) String() string {
	return fmt.Sprintf("%s/%d/%+v", s.journal.Phase, s.journal.Attempt, s.facts)
}

// TestDecideTable: docs/dev/states.md shows the table by which Decide decides.
func TestDecideTable(t *testing.T) {
	rows := []string{tableRow("demand", "planned", "at target", "reach", "no reboot", "phase", "last attempt", "same target", "same boot", "pending", "by hand", "action", "next attempt"), "|" + strings.Repeat("---|", 13)}
	for _, r := range pivot.Decisions() {
		cells := append(r.Inputs(), string(r.Action), cmp.Or(r.Next, "same"))
		rows = append(rows, tableRow(cells...))
	}
	generated(t, "decisions", rows)
}

// TestDecisionsApply: each situation has a row, and each row is the first for a situation.
func TestDecisionsApply(t *testing.T) {
	rows, used := pivot.Decisions(), map[int]bool{}
	for s := range situations() {
		i := slices.IndexFunc(rows, func(r pivot.Row) bool { return r.Fits(s.journal, s.facts) })
		if i < 0 {
			t.Fatalf("%v: no row applies", s)
		}
		used[i] = true
	}
	for i := range rows {
		if !used[i] {
			t.Errorf("row %d applies to nothing", i+1)
		}
	}
}

// TestDecide (P2, P7, P24) checks the promises, for all inputs.
func TestDecide(t *testing.T) {
	for s := range situations() {
		if why := brokenPromise(s.journal, s.facts, pivot.Decide(s.journal, s.facts)); why != "" {
			t.Fatalf("%v: %s", s, why)
		}
	}
}

// brokenPromise returns the promise that a decision breaks; "" if none.
func brokenPromise(r pivot.JournalContent, f pivot.Facts, d pivot.Decision) string {
	onTrial := f.Demand == pivot.DemandStop
	changes := d.Action == pivot.ActionApply || d.Action == pivot.ActionReboot || d.Action == pivot.ActionLive
	switch {
	case onTrial && d.Action != pivot.ActionRefuse:
		return "nothing changes while the running system is on trial"
	case onTrial:
		return ""
	case !f.Planned && d.Action != pivot.ActionPlan && !d.Yields(pivot.DemandEnd):
		return "without a plan nothing is carried out"
	case !f.Planned:
		return ""
	case (f.AtTarget || f.Reach == pivot.ReachNone) != (d.Action == pivot.ActionClose):
		return "close exactly when there is nothing to change"
	case d.Attempt > pivot.MaxAttempts:
		return "attempts are bounded"
	case d.Action == pivot.ActionReboot && !(f.SameBoot && f.PendingAtTarget && r.Phase == pivot.PhaseCommitted && f.Demand == pivot.DemandNone):
		return "a reboot alone needs a commit of this boot that the host confirms, and no trial"
	case f.Demand == pivot.DemandStay && changes:
		return "a system that somebody went back to stays"
	case (d.Action == pivot.ActionApply || d.Action == pivot.ActionReboot) && (f.NeverReboot || f.Demand == pivot.DemandWait || f.Reach != pivot.ReachBoot):
		return "the next boot changes only if that is needed, allowed, and the fleet agrees"
	case d.Action == pivot.ActionGiveUp && (!f.SameTarget || f.ByHand):
		return "a new target is always tried, and so is what somebody asks for"
	case f.Demand == pivot.DemandReturn && changes:
		return "a system that has not been proven is not changed"
	case f.ByHand && d.Action == pivot.ActionApply && d.Attempt != 1:
		return "a change by hand has one attempt"
	case d.Action == pivot.ActionApply && d.Attempt < 1:
		return "attempts count from 1"
	}
	if r.Phase == pivot.PhaseCommitted && !f.SameBoot && f.SameTarget && !f.ByHand { // it came up with the old system
		switch {
		case d.Action == pivot.ActionApply && d.Attempt != r.Attempt+1:
			return "a commit that did not hold counts"
		case d.Action == pivot.ActionApply && r.Attempt >= pivot.MaxAttempts:
			return "no reboot loop"
		}
	}
	return ""
}
