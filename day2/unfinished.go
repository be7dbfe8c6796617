package day2

import (
	"context"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/machine"
	"machine-pivot/pivot"
)

// Live is the feature that finishes a change of the running system which was interrupted. Apply makes such changes.
func Live() machine.Feature {
	return machine.Feature{Of: func(m *machine.Machine) pivot.Feature { return unfinished{m: m} }}
}

type unfinished struct {
	pivot.NoFeature
	m *machine.Machine
}

// Name implements pivot.Feature.
func (unfinished) Name() string { return "live" }

// Before implements pivot.Feature.
func (u unfinished) Before(ctx context.Context, step pivot.Step, plan *pivot.Plan) error {
	if step != pivot.StepBegin || plan != nil {
		return nil
	}
	_, err := finishLive(ctx, u.m)
	return err
}

// Status implements pivot.Feature.
func (u unfinished) Status(pivot.JournalContent) (s pivot.Status) {
	if LiveInterrupted(u.m.Host.Root) {
		s.Notes = []string{"a change of the running system is under way, or was interrupted: pivot apply --finish finishes it"}
	}
	return s
}

// explainStop is Machine.ExplainStop for a command that may leave a change of the running system, or a system that is
// entered only once.
func explainStop(ctx context.Context, m *machine.Machine, err error) error {
	switch {
	case !machine.Stopped(ctx, err):
	case m.Progress.Content.Held():
		return fault.New(fault.Unavailable, "stopped before the trial: %w", context.Cause(ctx)).
			WithHint("the next boot starts the running system; the same pivot command tries the new one again")
	case LiveInterrupted(m.Host.Root):
		return fault.New(fault.Unavailable, "stopped in the middle of a change of the running system: %w", context.Cause(ctx)).
			WithHint("pivot apply --finish finishes it, and so does the next boot")
	}
	return m.ExplainStop(ctx, err)
}

// end ends a command, and explains a stop.
func end(ctx context.Context, m *machine.Machine, err error) error {
	err = explainStop(ctx, m, err)
	m.TellBootc()
	m.Progress.End(err)
	return err
}
