package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

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
	if m.BoundImages != "" {
		settings.BoundImages = m.BoundImages
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

// EnterNext requests the one reboot, by the first way of the method that can be taken, and then blocks
// until systemd stops this program, so that units ordered after it do not start.
func (m *Machine) EnterNext(ctx context.Context, method host.RebootMethod) error {
	into := "a new deployment of the same image"
	if image := m.Progress.Content.Target.Image; !image.IsZero() {
		into = image.String()
	}
	m.TellBootc(ctx) // the reboot may be blocked for long
	return m.RebootBy(ctx, into, "the new system is ready; reboot by hand to enter it", func(ctx context.Context) error {
		return m.rebootByFirst(ctx, host.Ways(method))
	})
}

// ForeseeReboot says how the next system is going to be entered, and why not in a cheaper way, as far as
// that is known before the commit; "" if a method asks for an ordinary reboot. If once is not nil, the
// system is entered only once, for that reason.
func (m *Machine) ForeseeReboot(ctx context.Context, method host.RebootMethod, once error) string {
	cannot := map[host.RebootMethod]error{}
	for _, way := range host.Ways(method) {
		switch way {
		case host.RebootSoft:
			if cannot[way] = once; once == nil {
				cannot[way] = m.checkSoft(ctx)
			}
		case host.RebootKexec:
			cannot[way] = m.Host.CheckKexec()
		}
	}
	return host.Foresee(method, cannot)
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

// WithWay returns a plan as it is shown, with a note about how the next system is going to be entered, unless
// by an ordinary reboot that is asked for, and about what does not return the machine from a system that
// hangs. Settings that cannot be used stop the change, and not the plan.
func (m *Machine) WithWay(ctx context.Context, plan pivot.Plan) pivot.Plan {
	settings, err := m.Settings()
	if err != nil || plan.Reboots == 0 {
		return plan
	}
	if text := m.ForeseeReboot(ctx, settings.RebootMethod, nil); text != "" {
		plan.Notes = append(slices.Clone(plan.Notes), text)
	}
	return m.withWatchdog(plan, settings)
}

// rebootByFirst reboots by the first of the ways that can be taken. All of them lead into the committed
// system, so a doubt about one is only noted, and never fails a first boot.
func (m *Machine) rebootByFirst(ctx context.Context, ways []host.RebootMethod) error {
	for i, way := range ways {
		err := m.rebootOne(ctx, way)
		if err == nil || fault.KindOf(err).Transient() || i == len(ways)-1 {
			return err
		}
		m.Progress.Note(fmt.Sprintf("no %s but %s: %v", strings.TrimPrefix(way.Noun(), "a "), ways[i+1].Noun(), err))
	}
	return nil
}

func (m *Machine) rebootOne(ctx context.Context, way host.RebootMethod) error {
	switch way {
	case host.RebootSoft:
		return m.softReboot(ctx)
	case host.RebootKexec:
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
