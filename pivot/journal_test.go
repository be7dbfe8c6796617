package pivot_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/pivot"
)

// many returns a target with as many files as a MachineConfig may have, at paths of a length.
func many(length int) (target pivot.Target) {
	dir := "/etc/" + strings.Repeat("d", length-len("/etc//00000"))
	for i := range 50_000 {
		target.Entries = append(target.Entries, hostfiles.NewFile(fmt.Sprintf("%s/%05d", dir, i), 0o644, nil).Entry)
	}
	return target
}

// TestJournalOfMany: a target with as many files as there may be is journaled up to the end of its transaction, also if
// it fails repeatedly because all are missing. The message begins with the first of them.
func TestJournalOfMany(t *testing.T) {
	p := &pivot.Progress{Journal: pivot.JournalIn(t.TempDir()), Emit: func(pivot.Event) {}, Now: time.Now}
	target := many(70)
	lacks := fault.New(fault.Refused, "the new system has failed its trial: %s", strings.Join(pivot.Failures(pivot.State{}, target), "; "))
	if len(lacks.Error()) < 4<<20 {
		t.Fatalf("the message has only %d bytes", len(lacks.Error()))
	}
	for i := range 2 {
		p.Start(1, "boot", target)
		p.Content.Features = map[string]pivot.Part{"a": {Data: []byte(`"x"`), Holds: true}}
		for _, phase := range []pivot.Phase{pivot.PhaseApplying, pivot.PhaseCommitted, pivot.PhaseTrial} {
			if err := p.Enter(phase, "boot"); err != nil {
				t.Fatalf("transaction %d, %s: %v", i, phase, err)
			}
		}
		p.Begin(pivot.StepProve, "")
		p.Fail(lacks)
		if err := p.Enter(pivot.PhaseFailed, "boot"); err != nil {
			t.Fatalf("transaction %d: %v", i, err)
		}
	}
	r, err := p.Journal.Load()
	if err != nil || len(r.History) != 2 {
		t.Fatalf("%d accounts, %v", len(r.History), err)
	}
	for _, text := range []string{r.Error.Message, r.Phases[0].Tries[0].Message} {
		if len(text) > 40<<10 || !strings.Contains(text, "ddd/00001") || !strings.Contains(text, "; and more, of ") {
			t.Errorf("%d bytes: %.200s", len(text), text)
		}
	}
}

// TestJournalSheds: the history gives way to the transaction that runs, the oldest account first.
func TestJournalSheds(t *testing.T) {
	j := pivot.JournalIn(t.TempDir())
	r := pivot.JournalContent{Phase: pivot.PhaseCommitted, Target: many(70)}
	long := strings.Repeat("x", 600<<10) // as an earlier version has written it
	for i := range 10 {
		r.History = append(r.History, pivot.Account{Attempt: i, Error: &pivot.Failure{Message: long}})
	}
	if err := j.Save(r); err != nil {
		t.Fatal(err)
	}
	got, err := j.Load()
	if n := len(got.History); err != nil || n == 0 || n == 10 || got.History[n-1].Attempt != 9 || len(got.Target.Entries) != 50_000 {
		t.Errorf("%d accounts, %d entries, %v", n, len(got.Target.Entries), err)
	}
}

// TestTransactionTooLarge: what could not be journaled up to its end is refused before anything is changed.
func TestTransactionTooLarge(t *testing.T) {
	target := targetB()
	target.Entries = many(160).Entries
	s, progress, err := runTo(t, target, map[string][]error{"prepare": {errors.New("not reached")}})
	if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "bytes, at most") || len(s.calls) > 0 {
		t.Errorf("%v, calls %v", err, s.calls)
	}
	if r, err := progress.Journal.Load(); err != nil || r.Phase != pivot.PhaseIdle {
		t.Errorf("the journal says %s, %v", r.Phase, err)
	}
	target.Entries = many(70).Entries
	if _, _, err := runTo(t, target, nil); err != nil {
		t.Errorf("as many as there may be: %v", err)
	}
}
