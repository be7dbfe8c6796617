package trial

import (
	"context"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
	"machine-pivot/rpmostree"
)

// boots changes the default deployment.
func (c *Conductor) boots() rpmostree.Default {
	return rpmostree.Default{Sysroot: c.Host.Sysroot(), Run: c.Host.Run}
}

// deployment returns the deployment with the given ID and its boot entry.
func (c *Conductor) deployment(id string) (ostree.Deployment, error) {
	all, err := c.Host.Sysroot().Deployments()
	if err != nil {
		return ostree.Deployment{}, err
	}
	for _, d := range all {
		if d.ID() == id {
			return d, nil
		}
	}
	return ostree.Deployment{}, fault.New(fault.Refused, "deployment %s has no boot entry any more", id)
}

// makeDefault makes a deployment the default, unless it already is.
func (c *Conductor) makeDefault(ctx context.Context, id string) error {
	d, err := c.deployment(id)
	if err != nil {
		return err
	}
	all, err := c.Host.Sysroot().Deployments()
	if err != nil || all[0].ID() == id {
		return err
	}
	if err := c.boots().CheckTo(ctx, d.DeploymentRef); err != nil {
		return err
	}
	return c.boots().Make(ctx, d.DeploymentRef)
}
