package firstboot

import (
	"context"
	"fmt"
	"strings"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/retry"
	"machine-pivot/pivot"
)

// Trial conducts the trial of the system that runs, or closes one that is over: the
// program of pivot-trial.service.
type Trial struct {
	Machine
	// Sleep waits between two looks; nil: retry.Sleep.
	Sleep func(ctx context.Context, d time.Duration) error

	said string // last of what the system lacks
}

// look is how often a system on trial is looked at.
const look = 5 * time.Second

// Run returns when there is nothing on trial any more: the system is confirmed, or an
// earlier trial is closed. It ends with a reboot into the old system if the trial fails.
func (t *Trial) Run(ctx context.Context) error {
	err := t.conduct(ctx)
	if err != nil && ctx.Err() != nil {
		if t.Progress.Record.Phase == pivot.PhaseFailed {
			t.Progress.Note("stopped: the next boot goes on with what is left of the trial that has failed")
		} else {
			t.Progress.Note("stopped: the old system stays the default, and pivot confirm can still keep this one")
		}
		return nil
	}
	switch {
	case err == nil:
	case t.Progress.Record.Phase == pivot.PhaseFailed:
		t.Progress.Note(err.Error()) // why the trial has failed stays in the journal
	default:
		t.Progress.Fail(err)
	}
	return err
}

func (t *Trial) conduct(ctx context.Context) error {
	runs, err := t.alone(ctx, t.begin)
	for runs && err == nil {
		lacks := t.lacks(ctx)
		if err := ctx.Err(); err != nil {
			return err
		}
		runs, err = t.alone(ctx, func(ctx context.Context) (bool, error) { return t.decide(ctx, lacks) })
		if runs && err == nil {
			err = t.wait(ctx)
		}
	}
	return err
}

// say tells what the system lacks, whenever that changes.
func (t *Trial) say(lacks []string) {
	text := "the system has proven itself"
	if len(lacks) > 0 {
		text = strings.Join(lacks, "; ")
	}
	if text != t.said {
		t.said = text
		t.Progress.Note("on trial: " + text)
	}
}

func (t *Trial) wait(ctx context.Context) error {
	if t.Sleep != nil {
		return t.Sleep(ctx, look)
	}
	return retry.Sleep(ctx, look)
}

// alone does a step while no other pivot is at work, such as one that confirms.
func (t *Trial) alone(ctx context.Context, step func(context.Context) (bool, error)) (runs bool, err error) {
	err = t.Host.WithLock(ctx, t.wait, func() (err error) {
		runs, err = step(ctx)
		return err
	})
	return runs, err
}

// begin is the first look at the trial, in whichever system runs.
func (t *Trial) begin(ctx context.Context) (runs bool, err error) {
	state, err := t.openTrial(ctx)
	if err != nil {
		return false, err
	}
	switch state {
	case pivot.TrialNone:
		return false, t.Progress.Journal.Save(t.Progress.Record) // without its stamp
	case pivot.TrialWaits:
		t.Progress.Note("the system on trial waits for the reboot into it")
		return false, nil
	case pivot.TrialOver:
		return false, t.closeTrial(ctx)
	case pivot.TrialRuns:
		if t.Progress.Record.Phase == pivot.PhaseTrial && t.Progress.Record.BootID == t.Progress.BootID {
			return true, nil // begun already: this program was started again
		}
		return true, t.open(ctx)
	}
	return false, t.end(ctx, state)
}

// end ends a trial that is decided, in the system on trial.
func (t *Trial) end(ctx context.Context, state pivot.TrialState) error {
	switch state {
	case pivot.TrialKept:
		return t.keepTried(ctx)
	case pivot.TrialLost:
		return t.goBack(ctx)
	}
	return nil // somebody has confirmed it
}

// decide goes on with a trial, given what the system lacks. It reports whether that goes on.
func (t *Trial) decide(ctx context.Context, lacks []string) (runs bool, err error) {
	state, err := t.openTrial(ctx)
	if err != nil {
		return false, err
	}
	if state != pivot.TrialRuns {
		return false, t.end(ctx, state)
	}
	t.say(lacks)
	since, err := t.Host.Uptime()
	if err != nil {
		return false, err
	}
	switch trial := t.Progress.Record.Trial; {
	case since >= trial.Limit():
		return false, t.fail(ctx, lacks)
	case len(lacks) == 0 && trial.Confirm == pivot.ConfirmAuto:
		return false, t.confirm(ctx)
	}
	return true, nil
}

// open begins the trial of the system that runs. The old one is the default from here on
// at the latest.
func (t *Trial) open(ctx context.Context) error {
	trial := t.Progress.Record.Trial
	t.Progress.Begin(pivot.StepProve, fmt.Sprintf("on trial until %v after the start of the kernel; pivot confirm keeps this system, a reboot goes back", trial.Limit()))
	if err := t.makeDefault(ctx, trial.Old); err != nil {
		return err
	}
	return t.Progress.Enter(pivot.PhaseTrial, t.Progress.BootID)
}

// fail ends the trial of the system that runs. The journal first: whatever comes then
// finds the old system the default.
func (t *Trial) fail(ctx context.Context, lacks []string) error {
	trial := t.Progress.Record.Trial
	why := strings.Join(lacks, "; ")
	switch {
	case why != "":
	case trial.Confirm == pivot.ConfirmAuto:
		why = "it has proven itself too late"
	default:
		why = "nobody has confirmed it"
	}
	err := fault.New(fault.Refused, "the new system has failed its trial of %v: %s", trial.Limit(), why).WithHint(trialHint)
	t.Progress.Record.Error = pivot.FailureOf(err)
	t.Progress.Note(err.Error())
	if err := t.Progress.Enter(pivot.PhaseFailed, t.Progress.BootID); err != nil {
		return err
	}
	return t.goBack(ctx)
}

const trialHint = "see the journal of its boot (journalctl -b -1); the same again tries it again"

// goBack boots the old system, past nothing: by the firmware, for it is this kernel that is
// not trusted.
func (t *Trial) goBack(ctx context.Context) error {
	old := t.Progress.Record.Trial.Old
	if err := t.unstage(ctx); err != nil {
		return err
	}
	if err := t.makeDefault(ctx, old); err != nil {
		return err
	}
	return t.rebootBy(ctx, "the old system, deployment "+old, "reboot by hand to go back to it", t.Host.Reboot)
}

// unstage removes what somebody has staged meanwhile, which would be the next boot.
func (t *Trial) unstage(ctx context.Context) error {
	staged, err := t.Host.Sysroot().Staged()
	if err != nil || staged == nil {
		return err
	}
	t.Progress.Note(fmt.Sprintf("deployment %s, which somebody has staged on the system on trial, is removed", staged.Target.ID()))
	_, err = t.Host.Run(ctx, "ostree", "admin", "undeploy", "0")
	return err
}
