package firstboot

import (
	"context"
	"strings"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/retry"
	"machine-pivot/pivot"
)

// Confirm keeps a system that is on trial.
type Confirm struct{ Machine }

// Run makes the system that runs the default for good, if it has proven itself.
func (c *Confirm) Run(ctx context.Context) error {
	// The trial's unit has the lock now and then.
	wait := func(ctx context.Context) error { return retry.Sleep(ctx, time.Second) }
	err := c.Host.WithLock(ctx, wait, func() error { return c.attempt(ctx) })
	if err != nil {
		c.Progress.Fail(err)
	}
	return err
}

func (c *Confirm) attempt(ctx context.Context) error {
	state, err := c.openTrial(ctx)
	if err != nil {
		return err
	}
	switch state {
	case pivot.TrialRuns:
	case pivot.TrialKept:
		return c.keepTried(ctx)
	case pivot.TrialWaits:
		return fault.New(fault.Refused, "cannot confirm: the new system has not been booted")
	case pivot.TrialLost:
		return fault.New(fault.Refused, "cannot confirm: %s", c.Progress.Record.Error.Message)
	default:
		return fault.New(fault.Refused, "cannot confirm: no system is on trial here").WithHint("pivot status says what became of it")
	}
	c.Progress.Begin(pivot.StepProve, "looking at the system on trial")
	if lacks := c.lacks(ctx); len(lacks) > 0 {
		return fault.New(fault.Unavailable, "cannot confirm: %s", strings.Join(lacks, "; ")).
			WithHint("the trial goes on: correct that and confirm again before its time is over, see pivot status")
	}
	return c.confirm(ctx)
}
