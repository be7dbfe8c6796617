package firstboot

import (
	"context"
	"fmt"
	"strings"

	"machine-pivot/internal/live"
	"machine-pivot/internal/status"
	"machine-pivot/pivot"
)

// Status is what this boot's run, or else the journal, tells, with what is
// booted and what the next boot starts. Where the host says otherwise the host
// counts: see observed.
func (m *Machine) Status(ctx context.Context) (status.Status, error) {
	s, err := status.Read(m.Host.Root)
	if err != nil {
		return s, err
	}
	if s.LeftOut, err = m.leftOut(); err != nil {
		s.Notes = append(s.Notes, err.Error())
	}
	if record, err := m.Progress.Journal.Load(); err == nil { // if not, that is said below
		s.Downloaded, s.Slot = record.Downloaded, record.Slot
	}
	state, err := m.Host.Observe(ctx, s.Target)
	if err != nil {
		return s, nil // on a host that cannot pivot the rest still tells something
	}
	s.Booted = &state.Booted
	if state.Pending() {
		s.Pending = &state.Default
	}
	if live.Interrupted(m.Host.Root) {
		s.Notes = append(s.Notes, "a change of the running system goes on, or was interrupted: pivot apply --finish finishes it")
	}
	if err := m.Progress.Open(); err != nil {
		return s, err
	}
	if s.Step == pivot.StepCommit && s.Error == nil {
		return s, nil // the commit is going on: it is journalled before it takes effect
	}
	if s.Trial = m.Progress.Record.Trial; s.Trial != nil {
		return s, m.observedTrial(&s)
	}
	m.observed(&s, state)
	return s, nil
}

// observedTrial tells of a trial by the journal and by the system that runs.
func (m *Machine) observedTrial(s *status.Status) error {
	state, failed, err := m.conductor().State()
	if err != nil {
		return err
	}
	record := m.Progress.Record
	s.Phase, s.Error = record.Phase, record.Error
	switch state {
	case pivot.TrialWaits:
		s.Notes = append(s.Notes, "the new system is tried once: by the reboot that pivot asks for, not by another one; the same command does that again")
	case pivot.TrialRuns:
		s.Notes = append(s.Notes, "this system is on trial: pivot confirm keeps it, a reboot goes back")
	case pivot.TrialLost:
		s.Notes = append(s.Notes, "this system has failed its trial: a reboot goes back")
	case pivot.TrialOver:
		s.Phase, s.Error = pivot.PhaseFailed, failed
	}
	return nil
}

// observed corrects the phase of a transaction that is committed or over by what the
// host is. A pivot by hand, which no later run closes, is done once the booted system
// proves to be its target. What somebody else took back, or put another deployment
// in front of, is undone.
func (m *Machine) observed(s *status.Status, state pivot.State) {
	undone := func(what string, found pivot.State) {
		s.Phase = pivot.PhaseUndone
		s.Notes = append(s.Notes, what+": "+strings.Join(pivot.Prove(found, s.Target), "; "))
	}
	newBoot := m.Progress.Record.BootID != state.BootID
	atTarget := len(pivot.Prove(state, s.Target)) == 0
	switch {
	case s.Phase == pivot.PhaseCommitted && newBoot && atTarget, s.Phase == pivot.PhaseUndone && atTarget:
		s.Phase = pivot.PhaseDone
	case s.Phase == pivot.PhaseUndone:
		undone("somebody went back to this system", state)
		s.Notes = append(s.Notes, goForward)
	case s.Phase == pivot.PhaseCommitted && newBoot:
		undone("this boot came up without what was committed", state)
	case s.Phase == pivot.PhaseCommitted && !state.Pending():
		undone("what was committed is gone, and the next boot is the running system again", state)
	case s.Phase == pivot.PhaseCommitted && len(pivot.Prove(state.AsIfRebooted(), s.Target)) > 0:
		undone(fmt.Sprintf("the next boot starts deployment %s, %s", state.Default.ID(), inFront(state.Default)), state.AsIfRebooted())
	}
}

// inFront says how a deployment came in front of the one that pivot committed.
func inFront(d pivot.Deployment) string {
	if d.Staged {
		return "which somebody staged on top of what was committed, with the /etc that runs"
	}
	return "not the one that was committed"
}
