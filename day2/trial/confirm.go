package trial

import (
	"cmp"
	"context"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/pivot"
)

// Confirm makes the running system the default for good, if it has proven itself. Otherwise it
// returns an error of kind fault.Unavailable that names what is missing, and the trial continues.
func (c *Conductor) Confirm(ctx context.Context) error {
	state, _, err := c.judge()
	if err != nil {
		return err
	}
	switch state {
	case Runs:
	case Kept:
		return c.keepConfirmed(ctx)
	case Waits:
		return fault.New(fault.Refused, "cannot confirm: the new system has not been booted").WithHint("boot it: systemctl reboot")
	case Proves:
		return fault.New(fault.Refused, "nothing to confirm: the first boot keeps this system by itself once its checks pass").WithHint("complete it: pivot firstboot")
	case Lost:
		return fault.New(fault.Refused, "cannot confirm: %s", c.Progress.Content.Error.Message).WithHint("the trial is over; pivot status has the next step")
	default:
		return fault.New(fault.Refused, "cannot confirm: no system is on trial here").WithHint("see how the last trial ended: pivot status")
	}
	c.Progress.Begin(pivot.StepProve, "looking at the system on trial")
	if lacks := c.lacks(ctx); len(lacks) > 0 {
		return fault.New(fault.Unavailable, "cannot confirm: %s", strings.Join(lacks, "; ")).
			WithHint("the trial continues: correct that and confirm again before its time is over, see pivot status")
	}
	return c.keep(ctx)
}

// keep makes the running system the default and ends its trial. It journals the confirmation
// first, so that a boot after a crash knows about it, in either system.
func (c *Conductor) keep(ctx context.Context) error {
	unrecorded, err := c.markConfirmed()
	if err := cmp.Or(err, unrecorded); err != nil {
		return err
	}
	return c.keepConfirmed(ctx)
}

// markConfirmed journals that the running system is confirmed, once it is sure that this leads to it. What is wrong with
// the journal is returned as unrecorded.
func (c *Conductor) markConfirmed() (unrecorded, err error) {
	if err := c.nothingStaged(); err != nil {
		return nil, err
	}
	if err := c.change(func(t *Trial) { t.Confirmed = true }); err != nil {
		return nil, err
	}
	return c.Progress.Keep(), nil
}

// keepConfirmed makes a confirmed system the default, and ends its trial.
func (c *Conductor) keepConfirmed(ctx context.Context) error {
	unrecorded, err := c.makeConfirmedDefault(ctx)
	return cmp.Or(err, unrecorded)
}

// makeConfirmedDefault makes a confirmed system the default, and ends its trial. What is wrong with the journal is
// returned as unrecorded.
func (c *Conductor) makeConfirmedDefault(ctx context.Context) (unrecorded, err error) {
	c.tryForgetStart(ctx)
	if err := c.makeDefault(context.WithoutCancel(ctx), c.trial().New); err != nil {
		return nil, err
	}
	c.Progress.Begin(pivot.StepProve, "the new system is confirmed, and the default from now on")
	if err := c.over(""); err != nil {
		return nil, err
	}
	c.Progress.Content.Error = nil
	return c.Progress.Enter(pivot.PhaseDone, c.Progress.BootID), nil
}
