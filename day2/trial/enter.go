package trial

import (
	"context"
	"errors"
	"fmt"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/settings"
	"machine-pivot/internal/ways"
	"machine-pivot/pivot"
)

// Enter reboots into the system on trial. If possible it boots it only once, so that the boot
// after that starts the old system again.
func (c *Conductor) Enter(ctx context.Context, method settings.RebootMethod) error {
	trial := c.Progress.Content.Trial
	next, _, err := c.deployment(trial.New)
	if err != nil {
		return err
	}
	trial.Entered = true // tells the old system that the new one was to boot, if it never comes up
	if err := c.Progress.Keep(); err != nil {
		return err
	}
	into, hint := "the system on trial, deployment "+trial.New, TryAgain
	if trial.Confirm == pivot.ConfirmProof {
		into, hint = "the new system once, deployment "+trial.New, "the next boot starts the running system; pivot firstboot tries the new one again"
	}
	return c.Reboot(ctx, into, hint, func(ctx context.Context) error {
		return c.bootOnce(ctx, next, method)
	})
}

// bootOnce reboots into a deployment by the first of these ways that works: kexec, if method
// asks for it; an entry that the boot loader starts once; or making it the default.
func (c *Conductor) bootOnce(ctx context.Context, next ostree.Deployment, method settings.RebootMethod) error {
	if order := ways.Of(ways.Once(method)); order[0].Method == settings.RebootKexec {
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
	if err := c.Host.BootOnce(ctx, next); err != nil {
		c.Progress.Note(fmt.Sprintf("the new system is the default until it comes up: %v", err))
		old := c.Progress.Content.Trial.Old
		forget = func(ctx context.Context) error { return c.makeDefault(ctx, old) }
		if err := c.makeDefault(ctx, c.Progress.Content.Trial.New); err != nil {
			return err
		}
	}
	err := c.Host.Reboot(ctx)
	if err != nil { // another reboot must not enter the new system
		err = errors.Join(err, forget(context.WithoutCancel(ctx)))
	}
	return err
}
