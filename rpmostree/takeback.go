package rpmostree

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// orTakenBack runs a commit with its checks. If it fails after it has made a new deployment the next boot, the
// deployment is removed again, so that the next boot is the one from before. What pivot reports as failed must not
// boot, and all boot entries are as they were. What is the next boot is read, whatever a command says: libostree can
// fail after it has written the boot entries. A process that is killed between the two leaves the new system, which the
// next run compares with the target before its reboot, and after it.
//
// The refs of the request's image are part of what is checked, before and after.
func (e *Ostree) orTakenBack(ctx context.Context, r pivot.Spec, commit func() error) error {
	before, err := e.Sysroot.Deployments()
	if err == nil {
		err = r.Secured(ctx)
	}
	if err != nil {
		return err
	}
	booted, err := e.Sysroot.Booted()
	if err == nil {
		err = e.checkRemovable()
	}
	if err != nil {
		return err
	}
	failure := commit()
	if failure == nil {
		failure = r.Secured(ctx)
	}
	if failure == nil {
		e.dropPrevious(ctx, before, booted)
		return nil
	}
	isNew := func(d ostree.Deployment) bool { return indexOf(before, d) < 0 }
	next, err := e.Sysroot.Default()
	if err == nil && !isNew(next) {
		return failure
	}
	if err == nil {
		err = e.undeploy(ctx, 0)
	}
	if now, rerr := e.Sysroot.Default(); rerr != nil || isNew(now) || err != nil && e.zipl() {
		if err == nil {
			err = cmp.Or(rerr, errors.New("ostree reported success but it is still the next boot"))
		}
		return fault.New(fault.KindOf(failure), "%w (and the new deployment, which is the next boot, could not be removed: %v)", failure, err).
			WithHint("remove it before a reboot: ostree admin undeploy 0")
	}
	return fmt.Errorf("%w; the new deployment is removed again, the next boot is the one from before%s", failure, e.lost(before))
}

// lost says which deployments of before have no boot entry any more.
func (e *Ostree) lost(before []ostree.Deployment) (text string) {
	all, err := e.Sysroot.Deployments()
	for _, d := range before {
		if err == nil && indexOf(all, d) < 0 {
			text += "; deployment " + d.ID() + " had to be removed to make room"
		}
	}
	return text
}

// undeploy removes the deployment of a boot entry, counted from 0. libostree counts a staged one first.
func (e *Ostree) undeploy(ctx context.Context, entry int) error {
	staged, err := e.Sysroot.Staged()
	if err != nil {
		return err
	}
	if staged != nil {
		entry++
	}
	_, err = e.Run(ctx, "ostree", "admin", "undeploy", strconv.Itoa(entry))
	return err
}
