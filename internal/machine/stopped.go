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
	when := "before"
	if m.Progress.Content.Phase == pivot.PhaseCommitted {
		when = "after"
	}
	return fault.New(fault.Unavailable, "stopped %s the commit: %w", when, context.Cause(ctx)).WithHint("%s", m.afterStop())
}

// afterStop says what the next boot starts and how to continue. What the next boot starts is read from the boot entries:
// the journal may be of an earlier run, and somebody may have changed them since.
func (m *Machine) afterStop() string {
	committed := m.Progress.Content.Phase == pivot.PhaseCommitted
	state, err := m.Host.Systems()
	switch {
	case err != nil:
		return "pivot status shows what the next boot starts; the same command continues"
	case committed && state.Pending():
		return "the new system is committed: the next boot starts it, whoever reboots the machine; pivot rollback takes it back"
	case committed:
		return "the next boot starts the running system, deployment " + state.Booted.ID() + "; the same command finds out what is missing"
	case state.Pending():
		return "the next boot starts deployment " + state.Default.ID() + ", as before this command; what was pulled completely is kept, and the same command continues from there"
	}
	return "the next boot is the running system, unchanged; what was pulled completely is kept, and the same command continues from there"
}
