package pivot

import (
	"context"
	"slices"

	"machine-pivot/internal/hostfiles"
)

// preflight runs all checks that are possible before any write. Can the machine carry out the plan, would the next boot
// work, can the engine make the deployment, can the image be pulled? The network comes last; it shows problems with
// the registry, its certificate, the clock and the signature policy.
func (c *Converger) preflight(ctx context.Context, plan *Plan) error {
	c.Progress.Begin(StepPreflight, "checking what could fail")
	for _, note := range plan.Notes {
		c.Progress.Note(note)
	}
	if err := c.checkLocal(*plan); err != nil {
		return err
	}
	if err := c.Features.Before(ctx, StepPreflight, plan); err != nil {
		return err
	}
	warnings, err := c.check(*plan)
	for _, w := range warnings {
		c.Progress.Note("warning: " + w)
	}
	if err != nil || !plan.Image.Changed && len(plan.Packages) == 0 {
		return err
	}
	if err := c.Engine.Preflight(ctx, *plan); err != nil {
		return err
	}
	if source := plan.target.Packages.Source; !source.IsZero() {
		if err := c.Repositories.Check(ctx, source); err != nil {
			return err
		}
	}
	if !plan.Image.Changed {
		return nil
	}
	return c.Images.Check(ctx, plan.target.Image)
}

// checkLocal runs the checks of this run and of the machine, without the network.
func (c *Converger) checkLocal(plan Plan) error {
	for _, checks := range [][]Check{plan.req.Checks, c.Checks} {
		for _, check := range checks {
			if err := check(plan); err != nil {
				return err
			}
		}
	}
	return c.Progress.Journal.CheckWritable()
}

// check lets the contributors check a plan's entries.
func (c *Converger) check(plan Plan) (warnings []string, err error) {
	files, err := c.files(plan.target.Entries)
	if err != nil {
		return nil, err
	}
	for _, contributor := range c.Contributors {
		doubtful, err := contributor.Check(plan, files)
		warnings = append(warnings, doubtful...)
		if err != nil {
			return warnings, err
		}
	}
	return warnings, nil
}

// checkWithoutImage checks a target before its image is resolved, if the target needs changes
// whatever the image is.
func (c *Converger) checkWithoutImage(ctx context.Context, req Request, target Target) error {
	state, err := c.Host.Observe(ctx, target)
	if err != nil {
		return err
	}
	plan := planOf(req, state, target)
	if plan.wrong != nil || !plan.Changed {
		return plan.wrong
	}
	if err := c.checkLocal(plan); err != nil {
		return err
	}
	_, err = c.check(plan) // preflight reports the warnings
	return err
}

// learn completes a plan with its image now in the repository. It repeats the checks of the preflight if they did not
// know what the image has: its kernel arguments are applied, or an entry returns to what it has.
func (c *Converger) learn(ctx context.Context, plan Plan) (Plan, error) {
	learned, err := c.Content.Learn(ctx, plan)
	if err != nil {
		return plan, err
	}
	for _, note := range learned.Notes {
		c.Progress.Note(note)
	}
	returns := slices.ContainsFunc(learned.target.Entries, func(e hostfiles.Entry) bool { return e.Kind == hostfiles.KindDefault })
	if learned.target.Kargs.Image == nil && !returns {
		return learned, nil
	}
	if err := c.checkLocal(learned); err != nil {
		return learned, err
	}
	reported, err := c.check(plan)
	if err != nil {
		return learned, err
	}
	warnings, err := c.check(learned)
	for _, w := range warnings {
		if !slices.Contains(reported, w) {
			c.Progress.Note("warning: " + w)
		}
	}
	return learned, err
}
