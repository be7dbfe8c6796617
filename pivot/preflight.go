package pivot

import (
	"context"
	"slices"
)

// preflight checks, before any write, what can be known to fail: what the machine
// could not carry out, what the next boot would not work with, an engine that cannot
// do it, an image that cannot be had. The network is asked last: what the registry,
// its certificate, the clock and the signature policy have to say comes out then.
func (c *Converger) preflight(ctx context.Context, ask Ask, plan Plan) error {
	c.Progress.Begin(StepPreflight, "checking what could fail")
	for _, note := range plan.Notes {
		c.Progress.Note(note)
	}
	if err := c.checkLocal(ask, plan); err != nil {
		return err
	}
	warnings, err := c.check(plan)
	for _, w := range warnings {
		c.Progress.Note("warning: " + w)
	}
	if err != nil || !plan.Image.Changed && len(plan.Packages) == 0 {
		return err
	}
	if err := c.Engine.Preflight(ctx, plan); err != nil {
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

// checkLocal runs the checks of the run and of the machine.
func (c *Converger) checkLocal(ask Ask, plan Plan) error {
	for _, checks := range [][]Check{ask.Checks, c.Checks} {
		for _, check := range checks {
			if err := check(plan); err != nil {
				return err
			}
		}
	}
	return c.Progress.Journal.CheckWritable()
}

// check holds a plan's entries against the machine.
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

// checkWithoutImage checks a target whose image is not known yet, if something
// changes whichever it is.
func (c *Converger) checkWithoutImage(ctx context.Context, ask Ask, target Target) error {
	state, err := c.Host.Observe(ctx, target)
	if err != nil {
		return err
	}
	plan, err := Diff(state, target)
	if err != nil || !plan.Changed {
		return err
	}
	if err := c.checkLocal(ask, plan); err != nil {
		return err
	}
	_, err = c.check(plan) // the preflight tells its warnings
	return err
}

// learn completes a plan whose image is in the repository now, and repeats what the
// preflight has checked without the image's own kernel arguments.
func (c *Converger) learn(ask Ask, plan Plan) (Plan, error) {
	if ask.Trying != nil {
		if err := ask.Trying.Accept(plan.target.Image.Commit); err != nil {
			return plan, err
		}
	}
	learned, err := c.Content.Learn(plan)
	if err != nil {
		return plan, err
	}
	for _, note := range learned.Notes {
		c.Progress.Note(note)
	}
	if learned.target.Kargs.Image == nil {
		return learned, nil
	}
	if err := c.checkLocal(ask, learned); err != nil {
		return learned, err
	}
	told, err := c.check(plan)
	if err != nil {
		return learned, err
	}
	warnings, err := c.check(learned)
	for _, w := range warnings {
		if !slices.Contains(told, w) {
			c.Progress.Note("warning: " + w)
		}
	}
	return learned, err
}
