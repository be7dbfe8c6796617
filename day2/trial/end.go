package trial

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// PrepareChange prepares the machine for another change, as pivot.Decide says: it closes a trial that is
// over, and gives up one that waits for its reboot. It returns an error if the running system is
// on trial.
func (c *Conductor) PrepareChange(ctx context.Context) error {
	state, _, err := c.judge()
	if err != nil {
		return err
	}
	if state != Proves {
		err = c.forgetUnproven()
	}
	if err == nil {
		err = state.refusal()
	}
	if err != nil || pivot.Decide(c.Progress.Content, pivot.Facts{Demand: state.Demand()}).Action != pivot.ActionYield {
		return err
	}
	if state == Over {
		return c.close(ctx)
	}
	return c.replace(ctx, c.trial())
}

// refusal returns an error if nothing may change the machine in this state of its trial.
func (s State) refusal() error {
	switch s.Demand() {
	case pivot.DemandReturn:
		return fault.New(fault.Refused, "cannot change this machine: its first boot is not complete yet, the new system has not been checked").
			WithHint("complete it: pivot firstboot; a reboot starts the old system")
	case pivot.DemandStop:
		return fault.New(fault.Refused, "cannot change this machine: the system that runs is on trial").
			WithHint("pivot confirm keeps it; a reboot starts the old system")
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
	journal, trial := &c.Progress.Content, c.trial()
	c.tryForgetStart(ctx)
	if trial.Confirm == ConfirmProof {
		return c.closeAttempt(ctx, booted)
	}
	if err := c.reclaim(ctx, trial, booted); err != nil {
		return err
	}
	if failed := c.failure(booted); failed != journal.Error {
		journal.Error = failed
		if err := c.Progress.Enter(pivot.PhaseFailed, c.Progress.BootID); err != nil {
			return err
		}
	}
	c.remove(ctx, trial.New, booted)
	if err := ctx.Err(); err != nil {
		return err // stopped by a shutdown: the next boot closes the trial
	}
	if err := c.over(trial.New); err != nil { // it may be there still
		return err
	}
	c.Progress.Note(journal.Error.Message)
	return c.Progress.Journal.Save(*journal)
}

// forgetUnproven forgets an unproven deployment that is gone, because a later one may get its ID, and one that runs.
func (c *Conductor) forgetUnproven() error {
	known := c.remembered()
	id := known.Unproven
	if id == "" {
		return nil
	}
	_, index, err := c.find(id)
	if err != nil {
		return err
	}
	booted, err := c.Host.Sysroot().Booted()
	if err == nil && (index < 0 || booted.ID() == id) {
		known.Unproven = ""
		err = known.keepIn(&c.Progress.Content)
	}
	return err
}

// replace makes room for another transaction while a trial waits for its reboot. The committed
// deployment must not boot any more, because the new transaction drops its trial. Until then the journal keeps it, by
// which a caller sees that a trial was given up.
func (c *Conductor) replace(ctx context.Context, trial Trial) error {
	if err := c.forgetStart(ctx); err != nil {
		return err
	}
	known := c.remembered()
	known.Unproven = trial.New
	return errors.Join(c.reclaim(ctx, trial, trial.Old), known.keepIn(&c.Progress.Content))
}

// forgetStart takes back what starts the system on trial: the entry that the boot loader starts once, the trial's
// additions to its configuration, and what kexec has loaded. The loader has not started its entry if the system was
// entered or left by another way. It ends each trial, and precedes the change of the boot entries, which get other names.
func (c *Conductor) forgetStart(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	err := c.Host.ForgetPrepared(ctx)
	if c.trial().Entered {
		err = errors.Join(err, c.Host.ForgetOnce(ctx))
	}
	return errors.Join(err, c.Host.EndOnce(ctx))
}

// tryForgetStart is forgetStart for a trial that was entered, or could have been. A failure is only noted: as a rule,
// the boot loader itself has taken back what it was to start.
func (c *Conductor) tryForgetStart(ctx context.Context) {
	if err := c.forgetStart(ctx); err != nil {
		c.Progress.Note(err.Error())
	}
}

// reclaim makes the old system the default again if the one on trial is the default. That is so, for instance, if another
// system was chosen by hand in the boot menu. If the old one is gone, the running one becomes the default.
func (c *Conductor) reclaim(ctx context.Context, trial Trial, booted string) error {
	all, err := c.all()
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
