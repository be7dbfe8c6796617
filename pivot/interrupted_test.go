package pivot

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
)

// TestInterrupted: a signal interrupts a transaction that is not committed, and the same
// continues in the same attempt. What has ended, is committed or was not begun stays what it is.
func TestInterrupted(t *testing.T) {
	stop := fmt.Errorf("stopped: %w", fault.Stopped{Signal: "interrupt", ByHand: true})
	for _, c := range []struct {
		before, after Phase
		err           error
	}{
		{PhaseApplying, PhaseInterrupted, stop},
		{PhaseApplying, PhaseInterrupted, fault.New(fault.Unavailable, "x: %w", fault.Stopped{Signal: "hangup"})},
		{PhaseApplying, PhaseApplying, fault.New(fault.Unavailable, "x")},
		{PhaseApplying, PhaseFailed, errors.New("x")},
		{PhaseCommitted, PhaseCommitted, stop},
		{PhaseTrial, PhaseTrial, stop},
		{PhaseDone, PhaseDone, stop},
		{PhaseUndone, PhaseUndone, stop},
	} {
		p := &Progress{FirstBoot: true, Journal: Journal{Path: filepath.Join(t.TempDir(), "journal.json"), Disk: hostfiles.OS{}}, Emit: func(Event) {}, Now: time.Now}
		p.Start(2, "boot", Target{})
		if err := p.Enter(c.before, "boot"); err != nil {
			t.Fatal(err)
		}
		p.Fail(c.err)
		r, err := p.Journal.Load()
		if err != nil || r.Phase != c.after || r.Error == nil {
			t.Errorf("%s, then %v: %s, %+v, %v", c.before, c.err, r.Phase, r.Error, err)
		}
		if d := Decide(r, Facts{Planned: true, Reach: ReachBoot, SameBoot: true, SameTarget: true}); r.Phase == PhaseInterrupted && (d.Action != ActionApply || d.Attempt != 2) {
			t.Errorf("then %+v", d)
		}
	}
}
