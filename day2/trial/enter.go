package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/settings"
)

// Enter reboots into the system on trial. If possible it boots it only once, so that the boot
// after that starts the old system again.
func (c *Conductor) Enter(ctx context.Context, method settings.RebootMethod) error {
	trial := c.trial()
	if _, _, err := c.deployment(trial.New); err != nil {
		return err
	}
	// Entered tells the old system that the new one was to boot, if it never comes up.
	if err := cmp.Or(c.change(func(t *Trial) { t.Entered = true }), c.Progress.Keep()); err != nil {
		return err
	}
	into, hint := "the system on trial, deployment "+trial.New, tryAgain
	if trial.Confirm == ConfirmProof {
		into, hint = "the new system once, deployment "+trial.New, "the next boot starts the running system; pivot firstboot tries the new one again"
	}
	err := c.Reboot(ctx, into, hint, func(ctx context.Context) error { return c.enter(ctx, method) })
	if err != nil && !c.told { // nothing enters the new system any more
		c.record(cmp.Or(c.change(func(t *Trial) { t.Entered = false }), c.Progress.Keep()))
	}
	if staged := c.checkNothingStaged(); err != nil && staged != nil {
		err = fault.New(fault.KindOf(err), "%w", err).WithHint("%s", fault.HintOf(staged)) // the hint from above is not true then
	}
	return err
}

// enter reboots into the system on trial, once. It reads its boot entry, because other programs may have written the
// entries under other names since the last try.
func (c *Conductor) enter(ctx context.Context, method settings.RebootMethod) error {
	if err := c.checkNothingStaged(); err != nil {
		return err
	}
	next, _, err := c.deployment(c.trial().New)
	if err != nil {
		return err
	}
	return c.bootOnce(ctx, next, method)
}

// checkNothingStaged returns a transient error if the shutdown would make another system the default than the running
// one. Then no way boots the one on trial only once.
func (c *Conductor) checkNothingStaged() error {
	if err := c.Host.CheckNothingStaged(); err != nil {
		return fault.New(fault.Unavailable, "cannot boot the new system only once: %w", err).
			WithHint("remove what is staged: ostree admin undeploy 0. The same command then tries the new system again")
	}
	return nil
}

// bootOnce reboots into a deployment by the first way that works: kexec, if method asks for that; an entry that the
// boot loader starts once; or a new default.
func (c *Conductor) bootOnce(ctx context.Context, next ostree.Deployment, method settings.RebootMethod) error {
	if order := machine.WaysOf(machine.OnceBy(method)); order[0].Method == settings.RebootKexec {
		kernel, err := c.Host.KernelOf(next)
		if err == nil {
			err = c.Host.Kexec(ctx, kernel)
		}
		if err == nil || fault.KindOf(err).Transient() {
			return err
		}
		c.Progress.Note(order[0].Instead(order[1], err))
	}
	forget := c.Host.ForgetOnce
	c.told = true
	_, err := c.boots().Startable(next.DeploymentRef)
	if err == nil {
		err = c.Host.BootOnce(ctx, next)
	}
	if err != nil {
		c.Progress.Note(fmt.Sprintf("the new system is the default until it comes up: %v", err))
		forget = func(ctx context.Context) error { return c.OldFirst(ctx) }
		err = c.makeDefault(context.WithoutCancel(ctx), next.ID()) // a stop would leave what nobody knows
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = c.Host.Reboot(ctx)
	}
	if err == nil {
		return nil
	}
	forgot := forget(context.WithoutCancel(ctx)) // another reboot must not enter the new system
	c.told = forgot != nil
	return errors.Join(err, forgot)
}
