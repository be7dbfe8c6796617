package day2

import (
	"context"
	"fmt"

	"machine-pivot/day2/trial"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
)

// Fallback is the machine.Fallback of day 2: a first boot's new system is on trial until the first
// boot has proven it.
type Fallback struct{}

var _ machine.Fallback = Fallback{}

// Try implements machine.Fallback.
func (Fallback) Try(ctx context.Context, m *machine.Machine, method settings.RebootMethod) (*pivot.Trying, error) {
	return conductor(m).Attempt(ctx, method)
}

// Without implements machine.Fallback.
func (Fallback) Without(why error) string { return trial.NoFallback(why) }

// Enter implements machine.Fallback.
func (Fallback) Enter(ctx context.Context, m *machine.Machine, method settings.RebootMethod) error {
	return conductor(m).Enter(ctx, method)
}

// Proves implements machine.Fallback.
func (Fallback) Proves(ctx context.Context, m *machine.Machine) (bool, error) {
	if t := m.Progress.Content.Trial; t == nil || t.Confirm != pivot.ConfirmProof {
		return false, nil
	}
	state, _, err := conductor(m).State()
	switch {
	case err != nil || !m.Where().Started():
	case state == pivot.TrialKept:
		return false, conductor(m).FinishKeep(ctx)
	case state == pivot.TrialProves:
		// pivot-trial.service has done this already, if the new system has it enabled.
		if err := conductor(m).OldFirst(ctx); err != nil { // no reason not to prove the system
			m.Progress.Note(fmt.Sprintf("the new system is the default although it is not proven yet: %v", err))
		}
	}
	return state == pivot.TrialProves || state == pivot.TrialKept, err
}

// Keep implements machine.Fallback.
func (Fallback) Keep(ctx context.Context, m *machine.Machine) error { return conductor(m).Keep(ctx) }

// Return implements machine.Fallback.
func (Fallback) Return(ctx context.Context, m *machine.Machine, lacks string, reboot bool) error {
	return conductor(m).Return(ctx, lacks, reboot)
}
