package trial

import (
	"context"
	"slices"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
	"machine-pivot/rpmostree"
)

// boots changes the default deployment.
func (c *Conductor) boots() rpmostree.Default {
	return rpmostree.Default{Sysroot: c.Host.Sysroot(), Run: c.Host.Run, Note: c.Progress.Note}
}

// find returns the deployment with the given ID and its boot entry, and its index: 0 is the default, and
// -1 stands for none.
func (c *Conductor) find(id string) (d ostree.Deployment, index int, err error) {
	all, err := c.Host.Sysroot().Deployments()
	if err != nil {
		return d, -1, err
	}
	index = slices.IndexFunc(all, func(d ostree.Deployment) bool { return d.ID() == id })
	if index >= 0 {
		d = all[index]
	}
	return d, index, nil
}

// deployment is find for a deployment that must be there.
func (c *Conductor) deployment(id string) (d ostree.Deployment, index int, err error) {
	d, index, err = c.find(id)
	if err == nil && index < 0 {
		err = fault.New(fault.Refused, "the boot menu has no entry for deployment %s any more", id).
			WithHint("mount /boot if it is not mounted, and free space there if it is full; ostree admin status lists the deployments")
	}
	return d, index, err
}

// makeDefault makes a deployment the default, unless it already is. While a deployment is staged, it returns an error of
// kind fault.Unavailable: that would still be the next boot.
func (c *Conductor) makeDefault(ctx context.Context, id string) error {
	d, index, err := c.deployment(id)
	if err != nil || index == 0 {
		return err
	}
	if err := c.nothingStaged(); err != nil {
		return err
	}
	if err := c.boots().CheckTo(ctx, d.DeploymentRef); err != nil {
		return err
	}
	return c.boots().Make(ctx, d.DeploymentRef)
}

// nothingStaged returns an error of kind fault.Unavailable if a deployment is staged that would be the next boot,
// whatever the default is. So a trial is not confirmed as long as there is one. A deployment that is locked would not.
func (c *Conductor) nothingStaged() error {
	staged, err := c.Host.Sysroot().Staged()
	if err == nil && staged.Next() {
		err = fault.New(fault.Unavailable, "deployment %s is staged, which would be the next boot", staged.Target.ID()).
			WithHint("remove it: ostree admin undeploy 0")
	}
	return err
}
