package firstboot

import (
	"cmp"
	"context"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/pivot"
)

// settings are the machine's, but for what the command line says.
func (m *Machine) settings() (host.Settings, error) {
	settings, err := m.Host.Settings()
	if m.RebootMethod != "" {
		settings.RebootMethod = m.RebootMethod
	}
	if m.ImageKargs != "" {
		settings.ImageKargs = m.ImageKargs
	}
	settings.Window = overriding(m.Window, settings.Window)
	settings.FleetLock.URL = overriding(m.FleetLock, settings.FleetLock.URL)
	return settings, err
}

// overriding is a setting with what the command line says in its place: "" is nothing, and
// host.None that there is none.
func overriding(said, setting string) string {
	if said == host.None {
		return ""
	}
	return cmp.Or(said, setting)
}

// reboot asks for the one reboot and then waits for it: whoever is held until
// this program ends stays held.
func (m *Machine) reboot(ctx context.Context, method host.RebootMethod) error {
	into := "a new deployment of the same image"
	if image := m.Progress.Record.Target.Image; !image.IsZero() {
		into = image.String()
	}
	reboot := m.Host.Reboot
	if method == host.RebootKexec {
		reboot = m.kexec
	}
	return m.rebootBy(ctx, into, "the new system is ready; reboot by hand to enter it", reboot)
}

// rebootBy is reboot in a way of its own, into what it names. The hint is what to do if it
// cannot be had.
func (m *Machine) rebootBy(ctx context.Context, into, hint string, reboot func(context.Context) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	m.Progress.Begin(pivot.StepReboot, "rebooting into "+into)
	if err := m.Retry.Do(ctx, m.Progress.Waiting, reboot); err != nil {
		return fault.New(fault.KindOf(err), "%w", err).WithHint("%s", hint)
	}
	<-ctx.Done() // systemd stops us on its way down
	return nil
}

// kexec reboots past the firmware, or, where that cannot be, through it.
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
