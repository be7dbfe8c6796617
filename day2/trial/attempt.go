package trial

import (
	"context"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
	systemdunits "machine-pivot/systemd-units"
)

// Fallback returns the trial that the setting fallback=auto makes of a command's commit, on terms, and
// the link that enables Unit in the new system. An error says why this machine cannot enter a system
// only once: then its commits are as without the setting.
func (c *Conductor) Fallback(ctx context.Context, method settings.RebootMethod, terms Terms) (*pivot.Trying, hostfiles.File, error) {
	if err := c.checkOnce(method); err != nil {
		return nil, hostfiles.File{}, err
	}
	trying, link, err := c.Try(ctx, method, terms)
	if err != nil {
		return nil, link, err
	}
	trying.Fallback = true
	return trying, link, nil
}

// Attempt is Fallback for the commit of a first boot, which proves its own result. Unit does not have to be in the
// new system: it only makes the old one the default earlier than the first boot does.
func (c *Conductor) Attempt(ctx context.Context, method settings.RebootMethod) (*pivot.Trying, error) {
	booted, err := c.Host.Sysroot().Booted()
	if err == nil {
		err = c.checkOnce(method)
	}
	if err == nil {
		err = c.checkReturn(ctx)
	}
	if err != nil {
		return nil, err
	}
	return &pivot.Trying{
		Fallback:    true,
		Trial:       pivot.Trial{Old: booted.ID(), Confirm: pivot.ConfirmProof},
		CheckUnit:   c.acceptFirstBoot,
		Once:        c.once(method),
		Deployments: c.deployments,
		Hold:        func(ctx context.Context) error { return c.hold(ctx, booted) },
	}, nil
}

// NoFallback returns the warning for a commit without a fallback.
func NoFallback(why error) string {
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

// Return makes the old system the default, because the running one lacks something of what its first boot
// asks for. It reboots into it if reboot says so; otherwise it returns an error.
func (c *Conductor) Return(ctx context.Context, lacks string, reboot bool) error {
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
	return err.WithHint("the old system is the default: a reboot goes back to it")
}

// closeAttempt closes the trial of a first boot after another system was booted. The transaction is
// still committed and did not hold, as without a fallback: the first boot counts the attempt, unless
// the machine was rebooted before the new system was to be entered. The deployment stays, because the
// next attempt needs its content.
func (c *Conductor) closeAttempt(ctx context.Context, booted string) error {
	journal := &c.Progress.Content
	if err := c.reclaim(ctx, journal.Trial, booted); err != nil {
		return err
	}
	c.Progress.Note(c.failure(booted).Message)
	if !journal.Trial.Entered {
		journal.Phase = pivot.PhaseApplying // the attempt continues
	}
	journal.Trial, journal.Unproven, journal.Error = nil, journal.Trial.New, nil
	return c.Progress.Journal.Save(*journal)
}
