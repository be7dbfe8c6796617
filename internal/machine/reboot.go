package machine

import (
	"cmp"
	"context"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/pivot"
)

// Settings returns the machine's settings, overridden by the command line.
func (m *Machine) Settings() (host.Settings, error) {
	settings, err := m.Host.Settings()
	if m.RebootMethod != "" {
		settings.RebootMethod = m.RebootMethod
	}
	if m.ImageKargs != "" {
		settings.ImageKargs = m.ImageKargs
	}
	settings.Window = override(m.Window, settings.Window)
	settings.FleetLock.URL = override(m.FleetLock, settings.FleetLock.URL)
	return settings, err
}

// override returns the value of a flag if it is given, else the setting. The flag host.None
// clears the setting.
func override(flag, setting string) string {
	if flag == host.None {
		return ""
	}
	return cmp.Or(flag, setting)
}

// EnterNext requests the one reboot and then blocks until systemd stops this program, so that
// units ordered after it do not start.
func (m *Machine) EnterNext(ctx context.Context, method host.RebootMethod) error {
	into := "a new deployment of the same image"
	if image := m.Progress.Content.Target.Image; !image.IsZero() {
		into = image.String()
	}
	reboot := m.Host.Reboot
	if method == host.RebootKexec { // RebootEnter is for first boots alone
		reboot = m.kexec
	}
	return m.RebootBy(ctx, into, "the new system is ready; reboot by hand to enter it", reboot)
}

// RebootBy is reboot by a given method. into names the next system in messages; hint is the
// remedy if the reboot fails.
func (m *Machine) RebootBy(ctx context.Context, into, hint string, reboot func(context.Context) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	m.Progress.Begin(pivot.StepReboot, "rebooting into "+into)
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

// kexec reboots without the firmware, or, if that is not possible, through it. Both ways lead into
// the committed system, so a doubt about a kexec is only noted, and never fails a first boot.
func (m *Machine) kexec(ctx context.Context) error {
	next, err := m.Host.NextKernel()
	if err == nil {
		err = m.Host.Kexec(ctx, next)
	}
	if err == nil || fault.KindOf(err).Transient() {
		return err
	}
	m.Progress.Note("no kexec but an ordinary reboot: " + err.Error())
	return m.Host.Reboot(ctx)
}
