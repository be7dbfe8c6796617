package pivot

import (
	"context"
	"fmt"
	"slices"
)

// apply carries out a plan.
func (c *Converger) apply(ctx context.Context, plan Plan, attempt int) error {
	t, err := c.transaction(plan)
	if err != nil {
		return err
	}
	abandoned := c.abandoned(plan)
	if err := t.Run(ctx, plan, attempt); err != nil {
		c.releasePackages()
		return err
	}
	c.Release(ctx, plan.state.drops()...)
	if err := c.Images.Remove(ctx, abandoned); err != nil {
		c.Progress.Note(fmt.Sprintf("an image that is not wanted any more stays in the repository: %v", err))
	}
	return nil
}

// abandoned returns the image that an earlier transaction was to deploy, and may have pulled,
// if plan replaces that transaction. Downloads are kept.
func (c *Converger) abandoned(plan Plan) []Image {
	r := c.Progress.Content
	image := r.Target.Image
	switch {
	case r.Phase == PhaseIdle, r.Phase == PhaseDone, image.IsZero(), image.Same(plan.target.Image):
		return nil
	case slices.Contains(plan.state.drops(), image.Commit): // somebody else has staged it meanwhile
		return nil
	case r.needs(image):
		return nil
	}
	return []Image{image}
}

// transaction returns the transaction that carries out a plan.
func (c *Converger) transaction(plan Plan) (t Transaction, err error) {
	t = Transaction{
		Images: c.Images, Repositories: c.Repositories, Engine: c.Engine, Retry: c.Retry, Progress: c.Progress,
		BeforeCommit: c.Place.Leave, Forget: c.Host.ForgetPrepared, Accounts: c.Content.Accounts, Units: c.Content.Units, Learn: c.learn,
		Features: c.Features, ByHand: plan.req.ByHand, NextBoot: c.NextBoot, Inherits: plan.req.Inherits,
	}
	if t.ByHand {
		t.Pulling = c.Pulling
	}
	if t.Entries, err = c.files(plan.target.Entries); err == nil && !t.ByHand {
		t.Keep = adopted(t.Entries, plan.req)
	}
	return t, err
}

// NextBoot returns what the next boot starts.
func (c *Converger) NextBoot(ctx context.Context) (Deployment, error) {
	state, err := c.Host.Observe(ctx, Target{})
	return state.Default, err
}

// releasePackages removes the fetched packages. A failure is only noted.
func (c *Converger) releasePackages() {
	if err := c.Repositories.Release(); err != nil {
		c.Progress.Note(fmt.Sprintf("cannot remove the packages that were fetched: %v", err))
	}
}

// Release removes the fetched packages and drops what the import kept, since the deployment
// keeps the image now. keep is that of Images.Release. A failure does no harm to the machine, so it is only
// noted.
func (c *Converger) Release(ctx context.Context, keep ...string) {
	c.releasePackages()
	image := c.Progress.Content.Target.Image
	if image.Commit == "" {
		return
	}
	if err := c.Images.Release(ctx, image, keep...); err != nil {
		c.Progress.Note(fmt.Sprintf("cannot remove the ref that kept commit %s: %v", image.Commit, err))
	}
}
