package firstboot

import (
	"context"
	"fmt"
	"strconv"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// confirm keeps the system that runs. The journal first: a boot into the old system then
// knows that it was wanted, and one into this one that it is.
func (m *Machine) confirm(ctx context.Context) error {
	m.Progress.Record.Trial.Confirmed = true
	if err := m.Progress.Keep(); err != nil {
		return err
	}
	return m.keepTried(ctx)
}

// keepTried makes a confirmed system the default, and ends its trial.
func (m *Machine) keepTried(ctx context.Context) error {
	if err := m.makeDefault(context.WithoutCancel(ctx), m.Progress.Record.Trial.New); err != nil {
		return err
	}
	m.Progress.Begin(pivot.StepProve, "the new system is confirmed, and the default from now on")
	m.Progress.Record.Trial, m.Progress.Record.Error = nil, nil
	return m.Progress.Enter(pivot.PhaseDone, m.Progress.BootID)
}

// closeTrial ends a trial that has failed, in another system: what it was about is
// removed, so that nobody rolls back to it and /boot has room.
func (m *Machine) closeTrial(ctx context.Context) error {
	_, booted, err := m.trialState()
	if err != nil {
		return err
	}
	record := &m.Progress.Record
	if booted == record.Trial.Old {
		if err := m.reclaim(ctx, record.Trial); err != nil {
			return err
		}
	}
	if why := pivot.WhyTrialOver(*record, booted); why != "" {
		record.Error = pivot.FailureOf(trialOver(why))
		if err := m.Progress.Enter(pivot.PhaseFailed, m.Progress.BootID); err != nil {
			return err
		}
	}
	m.removeTried(ctx, record.Trial.New, booted)
	if err := ctx.Err(); err != nil {
		return err // stopped with the system: the next boot goes on with it
	}
	record.Trial = nil
	m.Progress.Note(record.Error.Message)
	return m.Progress.Journal.Save(*record)
}

// replaceTrial lets another transaction take the place of a trial that waits for its
// reboot: what it has committed may not boot any more, as its trial is forgotten.
func (m *Machine) replaceTrial(ctx context.Context, trial *pivot.Trial) error {
	if _, err := m.Host.OneShot(); err == nil && trial.Entered {
		if err := m.Host.ForgetOnce(ctx); err != nil {
			return err
		}
	}
	return m.reclaim(ctx, trial)
}

// reclaim makes the old system, which runs, the default again, where it was chosen by hand
// because the one on trial was the default and did not come up.
func (m *Machine) reclaim(ctx context.Context, trial *pivot.Trial) error {
	all, err := m.Host.Sysroot().Deployments()
	if err != nil {
		return err
	}
	if first := all[0].ID(); trial.New == "" && first != trial.Old { // a crash right after the commit
		trial.New = first
	}
	if all[0].ID() != trial.New {
		return nil
	}
	return m.makeDefault(ctx, trial.Old)
}

func trialOver(why string) error {
	return fault.New(fault.Refused, "the new system has failed its trial: %s", why).WithHint(trialHint)
}

// removeTried removes the deployment of a failed trial. The machine is well also if that
// fails, so it is only noted.
func (m *Machine) removeTried(ctx context.Context, id, booted string) {
	staged, err := m.Host.Sysroot().Staged()
	if err == nil && staged != nil { // the others' numbers are different then
		err = fmt.Errorf("deployment %s is staged", staged.Target.ID())
	}
	var all []ostree.Deployment
	if err == nil {
		all, err = m.Host.Sysroot().Deployments()
	}
	for i, d := range all {
		if d.ID() == id && id != booted && i > 0 {
			_, err = m.Host.Run(ctx, "ostree", "admin", "undeploy", strconv.Itoa(i))
		}
	}
	if err != nil {
		m.Progress.Note(fmt.Sprintf("the deployment of the trial stays: %v", err))
	}
}

// withoutTrial is an error if the system that runs is on trial. One that is over is closed.
func (m *Machine) withoutTrial(ctx context.Context) error {
	state, _, err := m.trialState()
	switch {
	case err != nil:
		return err
	case state == pivot.TrialOver:
		return m.closeTrial(ctx)
	case state == pivot.TrialWaits:
		return m.replaceTrial(ctx, m.Progress.Record.Trial)
	case state == pivot.TrialRuns, state == pivot.TrialKept, state == pivot.TrialLost:
		return fault.New(fault.Refused, "cannot change this machine: the system that runs is on trial").
			WithHint("pivot confirm keeps it; a reboot goes back to the system before")
	}
	return nil
}
