package day2

import (
	"cmp"
	"context"

	"machine-pivot/pivot"
)

// await carries out a plan when all that features wait for is there. Everything that needs the network is done before.
func (m *move) await(ctx context.Context, plan pivot.Plan) (changed bool, err error) {
	if plan, err = m.prefetch(ctx, plan); err != nil {
		return false, err
	}
	features := m.converger.Features
	if err := features.Before(ctx, pivot.StepWait, &plan); err != nil {
		return false, plan.OrOver(ctx, err)
	}
	defer func() {
		if err != nil || !changed {
			_ = features.After(ctx, pivot.StepWait, &plan, true) // it reports what fails
		}
	}()
	if err := features.Before(ctx, pivot.StepReady, &plan); err != nil {
		return false, err
	}
	req := pinned(plan)
	req.Waited = true
	// The wait may have taken hours, so the machine is observed again.
	if plan, err = m.converger.Plan(ctx, req); err != nil {
		return false, err
	}
	return m.carryOut(ctx, plan, m.converger.Decide(plan))
}

// prefetch pulls what a plan needs, unless it was downloaded before, and makes the move use it.
func (m *move) prefetch(ctx context.Context, plan pivot.Plan) (pivot.Plan, error) {
	if m.options.Downloaded { // a plan that pulled nothing does not know the commit
		d, err := recordedDownload(m.Machine)
		return plan.Pulled(d.Image.Commit), cmp.Or(plan.Err(), err)
	}
	var d Download
	plan, err := pull(ctx, m.converger, plan, &d)
	if err == nil {
		m.Pulled().Close()
		m.takeFrom(downloadedImages(m.Machine, d))
	}
	return plan, err
}
