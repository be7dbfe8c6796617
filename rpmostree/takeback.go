package rpmostree

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// orTakenBack runs a commit with its checks. If it fails after it has made a new deployment the
// next boot, the deployment is removed again, so that the next boot is the one from before: what
// pivot reports as failed must not boot. A process that is killed between the two leaves the new
// system, which the next run compares with the target before its reboot, and after it.
//
// The refs of the request's image are part of what is checked, before and after.
func (e *Ostree) orTakenBack(ctx context.Context, r pivot.Request, commit func() error) error {
	before, err := e.Sysroot.Deployments()
	if err == nil {
		err = r.Secured(ctx)
	}
	if err != nil {
		return err
	}
	failure := commit()
	if failure == nil {
		failure = r.Secured(ctx)
	}
	if failure == nil {
		return nil
	}
	isNew := func(d ostree.Deployment) bool { return indexOf(before, d) < 0 }
	next, err := e.nextBoot()
	if err == nil && !isNew(next) {
		return failure
	}
	if err == nil {
		err = e.undeploy(ctx, next)
	}
	if err == nil {
		if next, err = e.nextBoot(); err == nil && isNew(next) {
			err = errors.New("ostree reported success but it is still the next boot")
		}
	}
	if err != nil {
		return fault.New(fault.KindOf(failure), "%w (and the new deployment, which is the next boot, could not be removed: %v)", failure, err).
			WithHint("remove it before a reboot: ostree admin undeploy 0")
	}
	return fmt.Errorf("%w; the new deployment is removed again, the next boot is the one from before", failure)
}

// nextBoot returns the deployment that is the default in the boot entries.
func (e *Ostree) nextBoot() (ostree.Deployment, error) {
	all, err := e.Sysroot.Deployments()
	if err == nil && len(all) == 0 {
		err = errors.New("no boot entry is left")
	}
	if err != nil {
		return ostree.Deployment{}, err
	}
	return all[0], nil
}

// undeploy removes a deployment that has a boot entry. libostree counts a staged one first.
func (e *Ostree) undeploy(ctx context.Context, d ostree.Deployment) error {
	all, err := e.Sysroot.Deployments()
	if err != nil {
		return err
	}
	i := indexOf(all, d)
	if i < 0 {
		return nil
	}
	staged, err := e.Sysroot.Staged()
	if err != nil {
		return err
	}
	if staged != nil {
		i++
	}
	_, err = e.Run(ctx, "ostree", "admin", "undeploy", strconv.Itoa(i))
	return err
}
