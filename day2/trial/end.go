package trial

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// Settle prepares the machine for another change, as pivot.Decide says: it closes a trial that is
// over, and gives up one that waits for its reboot. It returns an error if the running system is
// on trial.
func (c *Conductor) Settle(ctx context.Context) error {
	state, _, err := c.judge()
	if err != nil {
		return err
	}
	if state != pivot.TrialProves {
		err = c.forgetUnproven()
	}
	if err == nil {
		err = c.refusal(state)
	}
	if err != nil || pivot.Decide(c.Progress.Content, pivot.Facts{Demand: state.Demand()}).Action != pivot.ActionYield {
		return err
	}
	if state == pivot.TrialOver {
		return c.close(ctx)
	}
	return c.replace(ctx, c.Progress.Content.Trial)
}

// CheckChange returns the error with which Settle refuses a change, if it does. It writes nothing.
func (c *Conductor) CheckChange() error {
	state, _, err := c.judge()
	if err == nil {
		err = c.refusal(state)
	}
	return err
}

// refusal returns an error if nothing may change the machine in a state of its trial.
func (c *Conductor) refusal(state pivot.TrialState) error {
	switch {
	case state == pivot.TrialProves:
		return pivot.NotProven()
	case pivot.Decide(c.Progress.Content, pivot.Facts{Demand: state.Demand()}).Action == pivot.ActionRefuse:
		return pivot.OnTrial()
	}
	return nil
}

// close ends a failed trial after another system was booted. It removes the deployment that was
// on trial, so that nobody rolls back to it and /boot has space.
func (c *Conductor) close(ctx context.Context) error {
	_, booted, err := c.judge()
	if err != nil {
		return err
	}
	journal := &c.Progress.Content
	c.noteTold(ctx)
	if journal.Trial.Confirm == pivot.ConfirmProof {
		return c.closeAttempt(ctx, booted)
	}
	if err := c.reclaim(ctx, journal.Trial, booted); err != nil {
		return err
	}
	if failed := c.failure(booted); failed != journal.Error {
		journal.Error = failed
		if err := c.Progress.Enter(pivot.PhaseFailed, c.Progress.BootID); err != nil {
			return err
		}
	}
	c.remove(ctx, journal.Trial.New, booted)
	if err := ctx.Err(); err != nil {
		return err // stopped by a shutdown: the next boot closes the trial
	}
	journal.Trial, journal.Unproven = nil, journal.Trial.New // if it could not be removed
	c.Progress.Note(journal.Error.Message)
	return c.Progress.Journal.Save(*journal)
}

// forgetUnproven forgets an unproven deployment that is gone, because a later one may get its ID, and one that runs.
func (c *Conductor) forgetUnproven() error {
	id := c.Progress.Content.Unproven
	if id == "" {
		return nil
	}
	_, index, err := c.find(id)
	if err != nil {
		return err
	}
	booted, err := c.Host.Sysroot().Booted()
	if err == nil && (index < 0 || booted.ID() == id) {
		c.Progress.Content.Unproven = ""
	}
	return err
}

// replace makes room for another transaction while a trial waits for its reboot. The committed
// deployment must not boot any more, because the new transaction drops its trial. Until then the journal keeps it, by
// which a caller sees that a trial was given up.
func (c *Conductor) replace(ctx context.Context, trial *pivot.Trial) error {
	if err := c.endTold(ctx); err != nil {
		return err
	}
	err := c.reclaim(ctx, trial, trial.Old)
	c.Progress.Content.Unproven = trial.New
	return err
}

// endTold takes back all that was told to start the system on trial: the entry that the boot loader starts once, which
// it has not started if the system was entered or left by another way; what the trial has added to its configuration;
// and what kexec has loaded. It ends each trial, and precedes the change of the boot entries, because that changes
// their names.
func (c *Conductor) endTold(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	err := c.Host.ForgetPrepared(ctx)
	if c.Progress.Content.Trial.Entered {
		err = errors.Join(err, c.Host.ForgetOnce(ctx))
	}
	return errors.Join(err, c.Host.EndOnce(ctx))
}

// noteTold is endTold for a trial that was entered, or could have been. A failure is only noted: as a rule, the boot
// loader itself has taken back what it was to start.
func (c *Conductor) noteTold(ctx context.Context) {
	if err := c.endTold(ctx); err != nil {
		c.Progress.Note(err.Error())
	}
}

// reclaim makes the old system the default again if the one on trial is the default, for instance because another system
// was chosen by hand in the boot menu; the one that runs, if the old one is gone.
func (c *Conductor) reclaim(ctx context.Context, trial *pivot.Trial, booted string) error {
	all, err := c.deployments()
	if err != nil || all[0] != trial.New {
		return err
	}
	if !slices.Contains(all, trial.Old) {
		return c.makeDefault(ctx, booted)
	}
	return c.makeDefault(ctx, trial.Old)
}

// remove removes the deployment of a failed trial. A failure does no harm to the machine, so it
// is only noted.
func (c *Conductor) remove(ctx context.Context, id, booted string) {
	staged, err := c.Host.Sysroot().Staged()
	if err == nil && staged != nil { // it would shift the indexes of the other deployments
		err = fmt.Errorf("deployment %s is staged", staged.Target.ID())
	}
	var all []ostree.Deployment
	if err == nil {
		all, err = c.Host.Sysroot().Deployments()
	}
	for i, d := range all {
		if d.ID() == id && id != booted && i > 0 {
			_, err = c.Host.Run(ctx, "ostree", "admin", "undeploy", strconv.Itoa(i))
		}
	}
	if err != nil {
		c.Progress.Note(fmt.Sprintf("the deployment of the trial stays: %v", err))
	}
}
