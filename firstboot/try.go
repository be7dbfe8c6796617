package firstboot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
	"machine-pivot/rpmostree"
)

// Try is that the new system has to prove itself before it is kept.
//
// Failing is what happens by itself, and confirming what somebody does: the new system is
// committed like any other, but the old one stays the default and the new one is entered
// once. So it needs nobody who counts boots to come back from a kernel that hangs.
type Try struct {
	For     time.Duration // from the start of its kernel; whole seconds
	Confirm pivot.Confirm
	Checks  []string // commands of the shell that must succeed
}

// TrialUnit conducts the trial in the new system, and closes it in the old one.
const TrialUnit = "pivot-trial.service"

// trialWants is the link that enables the unit.
const trialWants = "/etc/systemd/system/sysinit.target.wants/" + TrialUnit

// trying makes the wish for a trial one of what is asked for. It writes nothing, and tells
// before the commit what the trial does not cover.
func (m *Machine) trying(ctx context.Context, ask *pivot.Ask, method host.RebootMethod) error {
	booted, err := m.Host.Sysroot().Booted()
	if err != nil {
		return err
	}
	if err := m.canTry(ctx, booted); err != nil {
		return fault.New(fault.Refused, "cannot try a new system: %w", err)
	}
	link, _, err := hostfiles.Read(m.Host.Root, trialWants)
	if err != nil {
		return err
	}
	// The image's own default could be that the unit is not enabled.
	ask.Entries = append(ask.Entries, link)
	ask.Trying = &pivot.Trying{
		Trial:  pivot.Trial{Old: booted.ID(), Seconds: int(m.Try.For.Seconds()), Confirm: m.Try.Confirm, Checks: m.Try.Checks},
		Accept: m.acceptTried,
		Hold:   func(ctx context.Context) (string, error) { return m.hold(ctx, booted) },
	}
	m.sayCovered(method)
	return nil
}

// canTry is an error if this machine could not go back, or nobody would conduct the trial.
func (m *Machine) canTry(ctx context.Context, booted ostree.Deployment) error {
	enabled, err := m.Host.Has(trialWants)
	if err == nil && !enabled {
		err = fault.New(fault.Refused, "%s is not enabled, which would conduct the trial", TrialUnit).WithHint("systemctl enable %s", TrialUnit)
	}
	if err != nil {
		return err
	}
	staged, err := m.Host.Sysroot().Staged()
	if err == nil && staged != nil && !staged.Locked {
		err = fault.New(fault.Refused, "deployment %s is staged", staged.Target.ID()).WithHint("remove it first: ostree admin undeploy 0")
	}
	if err != nil {
		return err
	}
	return m.defaultTo(booted.DeploymentRef).Check(ctx)
}

// acceptTried is an error if the system of a commit has nobody who would conduct its trial.
func (m *Machine) acceptTried(commit string) error {
	has, err := m.Host.WillHaveUnit(TrialUnit, commit)
	if err == nil && !has {
		err = fault.New(fault.Refused, "cannot try the new system: it has no %s, so nobody would conduct the trial", host.UnitInImage(TrialUnit)).
			WithHint("put this release of pivot into the image, or go there without --try")
	}
	return err
}

// sayCovered tells what happens if the new kernel does not come as far as systemd.
func (m *Machine) sayCovered(method host.RebootMethod) {
	if method == host.RebootKexec && m.Host.CheckKexec() == nil {
		m.Progress.Note("the new system is entered once, by kexec: if it does not come up, the next power cycle boots the old one")
		return
	}
	loader, err := m.Host.OneShot()
	if err != nil {
		m.Progress.Note(fmt.Sprintf("warning: the new system is the default until it comes as far as systemd, so a kernel that hangs before that takes a hand at the boot menu: %v; --reboot-method=kexec enters it once", err))
		return
	}
	m.Progress.Note("the new system is entered once, by " + loader + ": if it does not come up, the next power cycle boots the old one")
}

// defaultTo makes a deployment the default.
func (m *Machine) defaultTo(d ostree.DeploymentRef) *rpmostree.Rollback {
	return &rpmostree.Rollback{Sysroot: m.Host.Sysroot(), Run: m.Host.Run, To: d}
}

// hold makes the system that runs the default again, and returns what was committed.
func (m *Machine) hold(ctx context.Context, booted ostree.Deployment) (onTrial string, err error) {
	all, err := m.Host.Sysroot().Deployments()
	if err != nil {
		return "", err
	}
	return all[0].ID(), m.defaultTo(booted.DeploymentRef).Commit(ctx, pivot.Request{})
}

// tryAgain is what to do about a system on trial that could not be entered: no other
// reboot enters it.
const tryAgain = "the next boot is the system that runs; the same command tries the new one again"

// enterTrial reboots into the system on trial, so that the boot after that one is the old
// system again, if that can be.
func (m *Machine) enterTrial(ctx context.Context, method host.RebootMethod) error {
	trial := m.Progress.Record.Trial
	next, err := m.deployment(trial.New)
	if err != nil {
		return err
	}
	trial.Entered = true // if it never comes up, this is all that is known
	if err := m.Progress.Keep(); err != nil {
		return err
	}
	return m.rebootBy(ctx, "the system on trial, deployment "+trial.New, tryAgain, func(ctx context.Context) error {
		return m.once(ctx, next, method)
	})
}

// once enters a deployment by the first way that there is.
func (m *Machine) once(ctx context.Context, next ostree.Deployment, method host.RebootMethod) error {
	if method == host.RebootKexec {
		kernel, err := m.Host.KernelOf(next)
		if err == nil {
			err = m.Host.Kexec(ctx, kernel)
		}
		if err == nil || fault.KindOf(err).Transient() {
			return err
		}
		m.Progress.Note("no kexec but an ordinary reboot: " + err.Error())
	}
	forget := m.Host.ForgetOnce
	if err := m.Host.BootOnce(ctx, next); err != nil {
		m.Progress.Note(fmt.Sprintf("the new system is the default until it comes up: %v", err))
		old := m.Progress.Record.Trial.Old
		forget = func(ctx context.Context) error { return m.makeDefault(ctx, old) }
		if err := m.makeDefault(ctx, m.Progress.Record.Trial.New); err != nil {
			return err
		}
	}
	err := m.Host.Reboot(ctx)
	if err != nil { // whoever reboots meanwhile does not enter it
		err = errors.Join(err, forget(context.WithoutCancel(ctx)))
	}
	return err
}

// deployment is the one of a name, with its boot entry.
func (m *Machine) deployment(id string) (ostree.Deployment, error) {
	all, err := m.Host.Sysroot().Deployments()
	if err != nil {
		return ostree.Deployment{}, err
	}
	for _, d := range all {
		if d.ID() == id {
			return d, nil
		}
	}
	return ostree.Deployment{}, fault.New(fault.Refused, "deployment %s has no boot entry any more", id)
}

// makeDefault makes a deployment the default, unless it is.
func (m *Machine) makeDefault(ctx context.Context, id string) error {
	d, err := m.deployment(id)
	if err != nil {
		return err
	}
	all, err := m.Host.Sysroot().Deployments()
	if err != nil || all[0].ID() == id {
		return err
	}
	to := m.defaultTo(d.DeploymentRef)
	if err := to.Prepare(ctx, pivot.Request{}); err != nil {
		return err
	}
	return to.Commit(ctx, pivot.Request{})
}
