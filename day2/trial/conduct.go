package trial

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/pivot"
)

// Conduct conducts the trial of the running system, or closes a trial that is over. Unit runs
// it. It returns when nothing is on trial any more: the system is confirmed, or an earlier trial
// is closed. If the trial fails, it reboots into the old system.
//
// A trial takes minutes, and an administrator may confirm it meanwhile. So the caller must
// neither hold the machine's lock nor have opened the journal: alone does both around each step.
// wait waits between two looks.
func (c *Conductor) Conduct(ctx context.Context, alone func(step func() error) error, wait func(context.Context) error) error {
	var runs bool
	err := alone(func() (err error) {
		runs, err = c.begin(ctx)
		return err
	})
	for runs && err == nil {
		lacks := c.lacks(ctx)
		if err := ctx.Err(); err != nil {
			return err
		}
		err = alone(func() (err error) {
			runs, err = c.decide(ctx, lacks)
			return err
		})
		if runs && err == nil {
			err = wait(ctx)
		}
	}
	return err
}

// noteLacks notes what the system lacks, whenever that changes.
func (c *Conductor) noteLacks(lacks []string) {
	text := cmp.Or(strings.Join(lacks, "; "), "the system has proven itself")
	if text != c.noted {
		c.noted = text
		c.Progress.Note("on trial: " + text)
	}
}

// begin handles the state of the trial at the start of Conduct, in the old system or the new
// one. It reports whether the running system is on trial.
func (c *Conductor) begin(ctx context.Context) (runs bool, err error) {
	state, _, err := c.judge()
	if err != nil {
		return false, err
	}
	switch state {
	case None:
		return false, c.Progress.Journal.Unstamp(Name) // left by a crash
	case Waits:
		c.Progress.Note("the system on trial waits for the reboot into it")
		return false, nil
	case Over:
		if c.trial().Confirm == ConfirmProof {
			return false, nil // the first boot closes its own attempt, and continues
		}
		return false, c.close(ctx)
	case Runs:
		c.open(ctx)
		return true, nil
	case Proves:
		return false, c.OldFirst(ctx)
	}
	return false, c.end(ctx, state)
}

// end ends a trial with a decision, in the system on trial.
func (c *Conductor) end(ctx context.Context, state State) error {
	switch state {
	case Kept:
		return c.keepConfirmed(ctx)
	case Lost:
		return c.goBack(ctx)
	}
	return nil // the trial was confirmed and ended meanwhile
}

// decide keeps the system or fails its trial if it is time for that, given what the system
// lacks. It reports whether the trial continues.
func (c *Conductor) decide(ctx context.Context, lacks []string) (runs bool, err error) {
	state, _, err := c.judge()
	if err != nil {
		return false, err
	}
	if state != Runs {
		return false, c.end(ctx, state)
	}
	c.tryOldFirst(ctx)
	if err := c.nothingStaged(); err != nil && len(lacks) == 0 { // since the look
		lacks = []string{err.Error()}
	}
	c.noteLacks(lacks)
	since, err := c.Host.Uptime()
	if err != nil {
		return false, err
	}
	switch trial := c.trial(); {
	case since >= trial.Limit():
		return false, c.fail(ctx, lacks)
	case len(lacks) == 0 && trial.Confirm == ConfirmAuto:
		return false, c.keep(ctx)
	}
	return true, nil
}

// OldFirst makes the old system the default, unless it already is. It is the first thing that a system on trial does
// when it comes up, however it is going to be confirmed. It may have been booted as the default, after a power cut
// right after the commit, or because the boot loader can start no entry once. If it hangs later, a power cycle must
// lead back.
func (c *Conductor) OldFirst(ctx context.Context) error {
	return c.makeDefault(ctx, c.trial().Old)
}

// open begins the trial of the running system, unless the unit was only restarted. What fails is only noted, because the
// trial has to end in any case.
func (c *Conductor) open(ctx context.Context) {
	journal := c.Progress.Content
	begun := journal.Phase == pivot.PhaseTrial && journal.BootID == c.Progress.BootID
	if !begun {
		c.Progress.Begin(pivot.StepProve, fmt.Sprintf("on trial until %v after the start of the kernel; pivot confirm keeps this system, a reboot starts the old one", c.trial().Limit()))
	}
	c.tryOldFirst(ctx)
	if !begun {
		c.record(c.Progress.Enter(pivot.PhaseTrial, c.Progress.BootID))
	}
}

// tryOldFirst is OldFirst for a trial that continues if that fails: it is tried again at each look, and at last by the way
// back. It notes the reason whenever that changes.
func (c *Conductor) tryOldFirst(ctx context.Context) {
	text := ""
	if err := c.OldFirst(ctx); err != nil {
		text = fmt.Sprintf("the system on trial is still the default: %v", err)
	}
	if text != "" && text != c.still {
		c.Progress.Note(text)
	}
	c.still = text
}

// record notes that the journal could not be written. A system on trial that has to be left is left without the
// journal, too: a disk that is full must not keep the machine there. In the old system, Trial.Judge calls the trial
// over, whatever the journal says about it.
func (c *Conductor) record(err error) {
	if err != nil {
		c.Progress.Note(fmt.Sprintf("the trial continues without a record: %v", err))
	}
}

// fail ends the trial of the running system and reboots into the old one. It writes the journal
// first: whatever happens afterwards, the failure is recorded if that is possible, and the old system is the default.
func (c *Conductor) fail(ctx context.Context, lacks []string) error {
	trial := c.trial()
	why := strings.Join(lacks, "; ")
	switch {
	case why != "":
	case trial.Confirm == ConfirmAuto:
		why = "it has proven itself too late"
	default:
		why = "nobody has confirmed it"
	}
	err := fault.New(fault.Refused, "the new system has failed its trial of %v: %s", trial.Limit(), why).WithHint(failedHint)
	c.Progress.Content.Error = pivot.FailureOf(err)
	c.Progress.Note(c.Progress.Content.Error.Message)
	c.record(c.Progress.Enter(pivot.PhaseFailed, c.Progress.BootID))
	return c.goBack(ctx)
}

// goBack reboots into the old system. It does not use kexec, since the running kernel is not
// trusted.
func (c *Conductor) goBack(ctx context.Context) error {
	old := c.trial().Old
	if err := c.turnBack(ctx); err != nil {
		return err
	}
	return c.Reboot(ctx, "the old system, deployment "+old, "reboot by hand to go back to it", func(ctx context.Context) error {
		if err := c.turnBack(ctx); err != nil { // once more: somebody may have staged something while the reboot was blocked
			return err
		}
		return c.Host.Reboot(ctx)
	})
}

// turnBack has the next boot start the old system.
func (c *Conductor) turnBack(ctx context.Context) error {
	if err := c.unstage(ctx); err != nil {
		return err
	}
	return c.OldFirst(ctx)
}

// unstage removes a deployment that was staged during the trial, as it would be the next boot.
func (c *Conductor) unstage(ctx context.Context) error {
	staged, err := c.Host.Sysroot().Staged()
	if err != nil || staged == nil {
		return err
	}
	c.Progress.Note(fmt.Sprintf("deployment %s, which somebody has staged on the system on trial, is removed", staged.Target.ID()))
	_, err = c.Host.Run(ctx, "ostree", "admin", "undeploy", "0")
	return err
}
