package machine

import (
	"cmp"
	"context"
	"errors"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
)

// Settings returns the machine's settings, overridden by the command line.
func (m *Machine) Settings() (settings.Settings, error) {
	chosen, err := m.Host.Settings()
	if m.RebootMethod != "" {
		chosen.RebootMethod = m.RebootMethod
	}
	if m.ImageKargs != "" {
		chosen.ImageKargs = m.ImageKargs
	}
	if m.BoundImages != "" {
		chosen.BoundImages = m.BoundImages
	}
	if m.BootLoader != "" {
		chosen.BootLoader = m.BootLoader
	}
	chosen.Accept = append(chosen.Accept, m.Accept...)
	chosen.Window = override(m.Window, chosen.Window)
	chosen.FleetLock.URL = override(m.FleetLock, chosen.FleetLock.URL)
	return chosen, err
}

// override returns the value of a flag if it is given, else the setting. The flag settings.None
// clears the setting.
func override(flag, setting string) string {
	if flag == settings.None {
		return ""
	}
	return cmp.Or(flag, setting)
}

// EnterNext enters the committed system, by the first possible way. Without a reboot, the boot continues in it when
// this program has ended. Otherwise EnterNext requests the one reboot, and then blocks until systemd stops this
// program, so that units ordered after it do not start. It enters nothing before the first boots of others have ended
// (AwaitOthers). A feature may have its own way.
func (m *Machine) EnterNext(ctx context.Context, ways Ways) error {
	err := m.AwaitOthers(ctx)
	if err == nil {
		err = m.Joined().Before(ctx, pivot.StepReboot, nil)
	}
	if err != nil || m.Report().Outcome == OutcomeRebooting {
		return err
	}
	possible := ways.possible()
	if possible[0].Method == settings.RebootEnter {
		err := m.goOn(ctx, ways.next)
		if err == nil {
			return nil
		}
		m.Progress.Note(possible[0].Instead(possible[1], err))
		possible = possible[1:]
	}
	into := "a new deployment of the same image"
	if image := m.Progress.Content.Target.Image; !image.IsZero() {
		into = image.String()
	}
	m.TellBootc() // the reboot may be blocked for long
	return m.RebootBy(ctx, into, "the new system is ready; reboot by hand to enter it", func(ctx context.Context) error {
		return m.rebootByFirst(ctx, possible)
	})
}

// RebootBy calls reboot, with retries, and then blocks until systemd stops this program. into names the next
// system in messages; hint is the remedy if the reboot fails.
func (m *Machine) RebootBy(ctx context.Context, into, hint string, reboot func(context.Context) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	m.Progress.Begin(pivot.StepReboot, "rebooting into "+into)
	if err := m.Host.ForgetPrepared(ctx); err != nil { // also of a run with a commit that stays, or that was to leave a trial
		m.Progress.Note(err.Error())
	}
	if err := m.Retry.Do(ctx, m.Progress.Waiting, reboot); err != nil {
		return fault.New(fault.KindOf(err), "%w", err).WithHint("%s", hint)
	}
	m.Report().Outcome = OutcomeRebooting
	if m.Rebooting != nil {
		m.Rebooting()
	}
	<-ctx.Done() // systemd stops this program on its way down
	return nil
}

// rebootByFirst reboots by the first of the ways that can be taken. All of them enter the committed system, so a doubt
// about one is only noted, and never fails a first boot.
func (m *Machine) rebootByFirst(ctx context.Context, possible []Way) error {
	for i, way := range possible {
		err := m.rebootOne(ctx, way.Method)
		if err == nil || fault.KindOf(err).Transient() || i == len(possible)-1 {
			return err
		}
		m.Progress.Note(way.Instead(possible[i+1], err))
	}
	return nil
}

func (m *Machine) rebootOne(ctx context.Context, method settings.RebootMethod) error {
	switch method {
	case settings.RebootSoft:
		return m.softReboot(ctx)
	case settings.RebootKexec:
		next, err := m.Host.NextKernel()
		if err == nil {
			err = m.Host.Kexec(ctx, next)
		}
		return err
	}
	return m.Host.Reboot(ctx)
}

func (m *Machine) softReboot(ctx context.Context) error {
	if err := m.checkSoft(ctx); err != nil {
		return err
	}
	next, err := m.Host.Sysroot().Default()
	if err != nil {
		return err
	}
	return m.Host.SoftReboot(ctx, next)
}

// checkSoft returns an error if no soft reboot is possible here, whatever the next system is.
func (m *Machine) checkSoft(ctx context.Context) error {
	if !m.Where().Started() {
		return errors.New("the system has not started")
	}
	return m.Host.CheckSoft(ctx)
}
