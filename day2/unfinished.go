package day2

import (
	"context"

	"machine-pivot/day2/live"
	"machine-pivot/day2/trial"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/status"
	"machine-pivot/pivot"
)

// Unfinished is the machine.Unfinished of day 2.
type Unfinished struct{}

var _ machine.Unfinished = Unfinished{}

// Finish implements machine.Unfinished.
func (Unfinished) Finish(ctx context.Context, m *machine.Machine) error {
	_, err := finishLive(ctx, m)
	return err
}

// Settle implements machine.Unfinished.
func (Unfinished) Settle(ctx context.Context, m *machine.Machine) error {
	return conductor(m).Settle(ctx)
}

// Interrupted implements machine.Unfinished.
func (Unfinished) Interrupted(m *machine.Machine) string {
	if !live.Interrupted(m.Host.Root) {
		return ""
	}
	return "a change of the running system goes on, or was interrupted: pivot apply --finish finishes it"
}

// Trial implements machine.Unfinished.
func (Unfinished) Trial(m *machine.Machine, s *status.Status) (there bool, err error) {
	journal := m.Progress.Content
	if s.Trial = journal.Trial; s.Trial == nil {
		return false, nil
	}
	state, failed, err := conductor(m).State()
	if err != nil {
		return true, err
	}
	s.Phase, s.Error = journal.Phase, journal.Error
	switch state {
	case pivot.TrialWaits:
		s.Notes = append(s.Notes, "the new system is tried once: by the reboot that pivot asks for, not by another one")
		s.Next = "run the same command again"
	case pivot.TrialRuns:
		s.Notes = append(s.Notes, "this system is on trial: a reboot goes back")
		if journal.Trial.Confirm != pivot.ConfirmAuto {
			s.Next = "pivot confirm keeps this system"
		}
	case pivot.TrialProves:
		s.Notes = append(s.Notes, "this system was booted once: its first boot keeps it as soon as it is proven, a reboot before that goes back")
	case pivot.TrialKept:
		if journal = m.Progress.Content; journal.Closed != nil && journal.Closed.Deployment == journal.Trial.New {
			s.Phase, s.Trial = pivot.PhaseDone, nil
			s.Notes = append(s.Notes, "this system is kept: its first boot has proven it, which could not be journaled yet")
		}
	case pivot.TrialLost:
		s.Notes = append(s.Notes, "this system has failed its trial: a reboot goes back")
	case pivot.TrialOver:
		s.Phase, s.Error = pivot.PhaseFailed, failed
	}
	return true, nil
}

// explainStop is Machine.ExplainStop for a command that may leave a change of the running system or
// a trial.
func explainStop(ctx context.Context, m *machine.Machine, err error) error {
	switch {
	case !machine.Stopped(ctx, err):
	case m.Progress.Content.Trial != nil:
		return fault.New(fault.Unavailable, "stopped before the trial: %w", context.Cause(ctx)).WithHint(trial.TryAgain)
	case live.Interrupted(m.Host.Root):
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
