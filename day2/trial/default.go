package trial

import (
	"context"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
	"machine-pivot/rpmostree"
)

// defaultTo returns the engine that makes a deployment the default.
func (c *Conductor) defaultTo(d ostree.DeploymentRef) *rpmostree.Rollback {
	return &rpmostree.Rollback{Sysroot: c.Host.Sysroot(), Run: c.Host.Run, To: d}
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
	to := c.defaultTo(d.DeploymentRef)
	if err := to.Prepare(ctx, pivot.Request{}); err != nil {
		return err
	}
	return to.Commit(ctx, pivot.Request{})
}
