package firstboot

import (
	"context"
	"errors"

	"machine-pivot/day2/live"
	"machine-pivot/day2/trial"
	"machine-pivot/internal/fault"
	"machine-pivot/pivot"
)

// explainStop replaces the error of a run that was stopped, by ^C or with its unit, by one that
// says what the run has left and how to go on. It returns any other error as it is, also one
// that explains the stop already.
func (m *Machine) explainStop(ctx context.Context, err error) error {
	if err == nil || !errors.Is(ctx.Err(), context.Canceled) || !errors.Is(err, context.Canceled) && !errors.Is(err, context.Cause(ctx)) {
		return err
	}
	if m.Progress.Record.Trial != nil {
		return fault.New(fault.Unavailable, "stopped before the trial: %w", context.Cause(ctx)).WithHint(trial.TryAgain)
	}
	if m.Progress.Record.Phase == pivot.PhaseCommitted {
		return fault.New(fault.Unavailable, "stopped after the commit: %w", context.Cause(ctx)).
			WithHint("the new system is committed: the next boot enters it, however it comes about; pivot rollback takes it back")
	}
	if live.Interrupted(m.Host.Root) {
		return fault.New(fault.Unavailable, "stopped in the middle of a change of the running system: %w", context.Cause(ctx)).
			WithHint("pivot apply --finish finishes it, and so does the next boot")
	}
	return fault.New(fault.Unavailable, "stopped before the commit: %w", context.Cause(ctx)).
		WithHint("the next boot is the system that runs, unchanged; what was fetched whole is kept, and the same again goes on from there")
}
