package machine

import (
	"slices"

	"machine-pivot/internal/host"
	"machine-pivot/internal/status"
	"machine-pivot/pivot"
)

// LacksWatchdog returns the note for a system that is entered only once if nothing resets the machine
// when that system hangs: a power cycle leads back, but somebody has to make it. It returns "" if a
// watchdog is armed, or if that is not known. In an initramfs it is not: a watchdog may be armed later.
func (m *Machine) LacksWatchdog() string {
	if !m.Where().Started() {
		return ""
	}
	watchdog, err := m.Host.Watchdog()
	if err != nil { // no reason to fail anything
		return ""
	}
	return watchdog.Lacking()
}

// withWatchdog returns a plan as it is shown, with LacksWatchdog if the settings have each new system
// entered only once.
func (m *Machine) withWatchdog(plan pivot.Plan, settings host.Settings) pivot.Plan {
	if note := m.LacksWatchdog(); settings.Fallback == host.FallbackAuto && note != "" {
		plan.Notes = append(slices.Clone(plan.Notes), note)
	}
	return plan
}

// noteWatchdog adds LacksWatchdog to the status of a machine that has a system on trial, or would
// enter the next one only once.
func (m *Machine) noteWatchdog(s *status.Status) {
	settings, err := m.Settings()
	always := err == nil && settings.Fallback == host.FallbackAuto
	tries := s.Trial != nil && s.Phase != pivot.PhaseFailed
	if note := m.LacksWatchdog(); note != "" && (always || tries) {
		s.Notes = append(s.Notes, note)
	}
}
