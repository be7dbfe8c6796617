package machine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"machine-pivot/internal/api"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/status"
	"machine-pivot/pivot"
)

// Status returns the status of this boot's run, or else of the journal, with what is booted
// and what the next boot starts. Where the host contradicts them the host decides: see
// correctPhase and correctOpenPhase.
func (m *Machine) Status(ctx context.Context) (status.Status, error) {
	s, err := m.statusOfRun(ctx)
	if err == nil {
		open, goesOn := m.correctOpenPhase(ctx, &s)
		s.Next = nextStep(s, m.Progress.Content.Held(), open, goesOn)
	}
	return s, err
}

func (m *Machine) statusOfRun(ctx context.Context) (status.Status, error) {
	now, err := m.Host.Start()
	if err != nil {
		now = "" // Observe below returns the error
	}
	s, err := status.Read(m.Host.Root, now)
	if err != nil {
		return s, err
	}
	s.Start = now
	for _, a := range s.Target.Accepted {
		s.Notes = append(s.Notes, fmt.Sprintf("this image was accepted (%s) although %s", a.Name, a.Text))
	}
	if s.LeftOut, err = m.LeftOut(); err != nil {
		s.Notes = append(s.Notes, err.Error())
	}
	if s.Cluster, err = api.ReadWanted(m.Host.Root); err != nil {
		s.Notes = append(s.Notes, fault.WithRemedy(err))
	}
	m.partitioning(&s)
	unusable := m.Progress.Open()
	var of pivot.Status
	if journal := m.Progress.Content; unusable == nil {
		of = m.Joined().Status(journal)
		s.Lines, s.Features = of.Lines, m.Joined().Parts(journal)
		m.nameConfigs(&s, journal)
	}
	state, err := m.Host.Observe(ctx, s.Target)
	if err != nil { // the rest is useful also on a host that cannot pivot
		s.Notes = append(s.Notes, fault.WithRemedy(err))
		return s, nil
	}
	s.Booted, s.HeldBack = &state.Booted, state.HeldBack
	s.Notes = append(s.Notes, state.Booted.LostOptions()...)
	if state.Pending() {
		s.Pending = &state.Default
	}
	s.Notes = append(s.Notes, of.Notes...)
	switch instead := of.Instead; {
	case unusable != nil:
		return s, unusable
	case s.Step == pivot.StepCommit && s.Error == nil: // a commit is running: it is journaled before it takes effect
	case instead != nil:
		s.Phase, s.Error, s.Next = instead.Phase, instead.Error, instead.Next
		s.Notes = append(s.Notes, instead.Notes...)
	default:
		m.correctPhase(&s, state)
	}
	return s, nil
}

// partitioning adds what kubelet's pinning file says.
func (m *Machine) partitioning(s *status.Status) {
	types, err := m.Host.WorkloadTypes()
	s.Partitioning = &status.Partitioning{Workloads: append([]string{}, types...)}
	if err != nil {
		s.Partitioning.Problem = fault.WithRemedy(err)
		s.Notes = append(s.Notes, s.Partitioning.Problem)
	}
}

// correctPhase corrects the phase of a transaction that is committed or over by the state of
// the host. A pivot by hand, which no later run closes, is done once the booted system
// matches its target, and stays so if that is changed later. A transaction is undone if another tool
// took it back, or made another deployment the next boot.
func (m *Machine) correctPhase(s *status.Status, state pivot.State) {
	undone := func(what string, found pivot.State) {
		s.Phase = pivot.PhaseUndone
		s.Notes = append(s.Notes, what+": "+strings.Join(pivot.Prove(found, s.Target), "; "))
	}
	newBoot := m.Progress.Content.BootID != state.BootID
	atTarget := len(pivot.Failures(state, s.Target)) == 0
	switch {
	case s.Phase == pivot.PhaseCommitted && atTarget && (newBoot || !state.Pending()), s.Phase == pivot.PhaseUndone && atTarget:
		s.Phase = pivot.PhaseDone
	case s.Phase == pivot.PhaseUndone:
		undone("somebody went back to this system", state)
		s.Next = goForward
	case s.Phase == pivot.PhaseCommitted && newBoot && cameUp(state, s.Target):
		s.Phase = pivot.PhaseDone
		s.Notes = append(s.Notes, "this boot came up with what was committed, and has been changed since: "+strings.Join(pivot.Prove(state, s.Target), "; "))
	case s.Phase == pivot.PhaseCommitted && newBoot:
		undone("this boot came up without what was committed", state)
	case s.Phase == pivot.PhaseCommitted && !state.Pending():
		undone("what was committed is gone, and the next boot is the running system again", state)
	case s.Phase == pivot.PhaseCommitted && len(pivot.Failures(state.AsIfRebooted(), s.Target)) > 0:
		undone(fmt.Sprintf("the next boot starts deployment %s, %s", state.Default.ID(), describeUnexpected(state.Default)), state.AsIfRebooted())
	}
}

// cameUp reports whether the running system is the one that was committed for a MachineConfig, although something
// differs. No record says so, since nothing of pivot runs in that boot. But the commit has written the MachineConfig
// into the new system's /etc, and image, arguments and packages do not change in a boot.
func cameUp(state pivot.State, target pivot.Target) bool {
	if target.MachineConfig.Digest == "" {
		return false
	}
	return !slices.ContainsFunc(pivot.Compare(state, target), func(d pivot.Difference) bool {
		switch d.Class {
		case pivot.ClassImage, pivot.ClassArguments, pivot.ClassPackage:
			return true
		}
		return d.Path == machineconfig.RecordPath
	})
}

// The remedy for a host that was rolled back after its first boot.
const (
	goForward = "pivot firstboot --again; or boot the other deployment, if it is still there"
	GoForward = "to go forward: " + goForward
)

// describeUnexpected describes a default deployment that is not the one that pivot committed.
func describeUnexpected(d pivot.Deployment) string {
	if d.Staged {
		return "which somebody staged on top of what was committed, with the /etc that runs"
	}
	return "not the one that was committed"
}
