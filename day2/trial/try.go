package trial

import (
	"context"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
)

// Try returns the trial of a new system, which Enter enters by method, and the link that enables Unit there. It writes
// nothing. It returns an error if this machine could not go back to the running system.
func (c *Conductor) Try(ctx context.Context, method settings.RebootMethod, terms Terms) (*pivot.Trying, hostfiles.File, error) {
	booted, err := c.Host.Sysroot().Booted()
	if err != nil {
		return nil, hostfiles.File{}, err
	}
	link, err := c.Host.Enablement(unitWants, "conduct the trial")
	if err == nil {
		err = c.checkReturn(ctx)
	}
	if err != nil {
		return nil, link, fault.New(fault.Refused, "cannot try a new system: %w", err)
	}
	return &pivot.Trying{
		Trial:       pivot.Trial{Old: booted.ID(), Seconds: int(terms.For.Seconds()), Confirm: terms.Confirm, Checks: terms.Checks},
		CheckUnit:   c.accept,
		Once:        c.once(method),
		Deployments: c.deployments,
		Hold:        func(ctx context.Context) error { return c.hold(ctx, booted) },
	}, link, nil
}

// checkReturn returns an error if this machine could not go back to the running system.
func (c *Conductor) checkReturn(ctx context.Context) error {
	staged, err := c.Host.Sysroot().Staged()
	if err == nil && staged.Next() {
		err = fault.New(fault.Refused, "deployment %s is staged", staged.Target.ID()).WithHint("remove it first: ostree admin undeploy 0")
	}
	if err != nil {
		return err
	}
	return c.boots().Check(ctx)
}

// accept returns an error if the system of a commit lacks Unit, so that its trial would not be
// conducted.
func (c *Conductor) accept(commit string) error {
	has, err := c.Host.WillHaveUnit(Unit, commit)
	if err == nil && !has {
		err = fault.New(fault.Refused, "cannot try the new system: it has no %s, so nothing would check and end the trial", host.UnitInImage(Unit)).
			WithHint("put this release of pivot into the image, or leave out --try")
	}
	return err
}

// deployments returns the IDs of all deployments that have a boot entry, the default first.
func (c *Conductor) deployments() (ids []string, err error) {
	all, err := c.Host.Sysroot().Deployments()
	for _, d := range all {
		ids = append(ids, d.ID())
	}
	return ids, err
}

// hold makes the running system the default again.
func (c *Conductor) hold(ctx context.Context, booted ostree.Deployment) error {
	return c.boots().Make(ctx, booted.DeploymentRef)
}
