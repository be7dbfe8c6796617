package trial

import (
	"context"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/pivot"
	systemdunits "machine-pivot/systemd-units"
)

// withoutFallback returns the warning for a commit without a fallback.
func withoutFallback(why error) string {
	return "warning: no fallback, so if the new kernel is dead, somebody must choose the old system in the boot menu: " + why.Error()
}

// acceptFirstBoot returns an error if the system of a commit would not prove itself.
func (c *Conductor) acceptFirstBoot(commit string) error {
	has, err := c.Host.WillHaveUnit(systemdunits.FirstBoot, commit)
	if err == nil && !has {
		err = fault.New(fault.Refused, "the new image does not contain pivot (no %s), so the first boot could not be checked there", host.UnitInImage(systemdunits.FirstBoot)).
			WithHint("build pivot into the image, or set fallback=none")
	}
	return err
}

// Keep makes the running system, which its first boot has proven, the default. It does so also if the journal cannot be
// written: the first boot writes the same journal right afterwards, and has another record if that fails, too. Before
// it has that, the next boot proves the system again.
func (c *Conductor) Keep(ctx context.Context) error {
	if _, err := c.markConfirmed(); err != nil {
		return err
	}
	return c.FinishKeep(ctx)
}

// FinishKeep completes a Keep that was interrupted.
func (c *Conductor) FinishKeep(ctx context.Context) error {
	_, err := c.makeConfirmedDefault(ctx)
	return err
}

// giveBack makes the old system the default, because the running one lacks something of what its first boot
// asks for. It reboots into it if reboot says so; otherwise it returns an error.
func (c *Conductor) giveBack(ctx context.Context, lacks string, reboot bool) error {
	err := fault.New(fault.Refused, "the new system is not what the MachineConfig asks for: %s", lacks).
		WithHint("correct what is named, then: pivot firstboot --again")
	c.Progress.Content.Error = pivot.FailureOf(err)
	if reboot {
		c.Progress.Note(c.Progress.Content.Error.Message)
	}
	c.record(c.Progress.Keep())
	if reboot {
		return c.goBack(ctx)
	}
	if err := c.turnBack(ctx); err != nil {
		return err
	}
	return err.WithHint("the old system is the default: systemctl reboot starts it")
}

// closeAttempt closes the trial of a first boot after another system was booted. The transaction is still committed and
// did not hold, as without a fallback. The first boot counts the attempt, unless the machine was rebooted before the
// new system was to be entered. The deployment stays, because the next attempt needs its content.
func (c *Conductor) closeAttempt(ctx context.Context, booted string) error {
	journal, trial := &c.Progress.Content, c.trial()
	if err := c.reclaim(ctx, trial, booted); err != nil {
		return err
	}
	c.Progress.Note(c.failure(booted).Message)
	if !trial.Entered {
		journal.Phase = pivot.PhaseApplying // the attempt continues
	}
	journal.Error = nil
	if err := c.over(trial.New); err != nil {
		return err
	}
	return c.Progress.Journal.Save(*journal)
}
