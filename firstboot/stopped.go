package firstboot

import (
	"context"
	"errors"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/live"
	"machine-pivot/internal/trial"
	"machine-pivot/pivot"
)

// stopped says of a run that somebody told to stop, by ^C or a stop of its unit, what it
// has left and how to go on. Any other error stays what it is, and so does one that says
// so itself.
func (m *Machine) stopped(ctx context.Context, err error) error {
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
