package machine

import (
	"context"
	"errors"

	"machine-pivot/internal/fault"
	"machine-pivot/pivot"
)

// Stopped reports whether a command was stopped, by ^C or with its unit, and err is because of
// that. It is false for an error that explains the stop already.
func Stopped(ctx context.Context, err error) bool {
	return err != nil && errors.Is(ctx.Err(), context.Canceled) && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx)))
}

// ExplainStop replaces the error of a command that was stopped by one that says what the command
// has left and how to continue. It returns any other error as it is.
func (m *Machine) ExplainStop(ctx context.Context, err error) error {
	if !Stopped(ctx, err) {
		return err
	}
	if m.Progress.Content.Phase == pivot.PhaseCommitted {
		return fault.New(fault.Unavailable, "stopped after the commit: %w", context.Cause(ctx)).
			WithHint("the new system is committed: the next boot starts it, whoever reboots the machine; pivot rollback takes it back")
	}
	return fault.New(fault.Unavailable, "stopped before the commit: %w", context.Cause(ctx)).
		WithHint("the next boot is the running system, unchanged; what was pulled completely is kept, and the same command continues from there")
}
