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
	return rpmostree.Default{Sysroot: c.Host.Sysroot(), Run: c.Host.Run}
}

// deployment returns the deployment with the given ID and its boot entry, and its index: 0 is the
// default.
func (c *Conductor) deployment(id string) (d ostree.Deployment, index int, err error) {
	all, err := c.Host.Sysroot().Deployments()
	if err != nil {
		return d, 0, err
	}
	index = slices.IndexFunc(all, func(d ostree.Deployment) bool { return d.ID() == id })
	if index < 0 {
		return d, 0, fault.New(fault.Refused, "deployment %s has no boot entry any more", id)
	}
	return all[index], index, nil
}

// makeDefault makes a deployment the default, unless it already is.
func (c *Conductor) makeDefault(ctx context.Context, id string) error {
	d, index, err := c.deployment(id)
	if err != nil || index == 0 {
		return err
	}
	if err := c.boots().CheckTo(ctx, d.DeploymentRef); err != nil {
		return err
	}
	return c.boots().Make(ctx, d.DeploymentRef)
}
