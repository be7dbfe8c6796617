package machine

import (
	"slices"

	"machine-pivot/internal/settings"
	"machine-pivot/internal/status"
	"machine-pivot/pivot"
)

// NoteHang notes, before the commit of a plan, what does not return the machine from the new system if that hangs.
func (m *Machine) NoteHang(plan pivot.Plan) {
	if !plan.Tries() {
		return
	}
	if note := m.lacksWatchdog(); note != "" {
		m.Progress.Note(note)
	}
}

// lacksWatchdog returns the note for a system that is entered only once if nothing resets the machine
// when that system hangs: a power cycle leads back, but somebody has to make it. It returns "" if a
// watchdog is armed, or if that is not known. In an initramfs it is not: a watchdog may be armed later.
func (m *Machine) lacksWatchdog() string {
	if !m.Where().Started() {
		return ""
	}
	watchdog, err := m.Host.Watchdog()
	if err != nil { // no reason to fail anything
		return ""
	}
	return watchdog.Lacking()
}

// withWatchdog returns a plan as it is shown, with lacksWatchdog if the settings have each new system
// entered only once.
func (m *Machine) withWatchdog(plan pivot.Plan, chosen settings.Settings) pivot.Plan {
	if chosen.Fallback != settings.FallbackAuto {
		return plan
	}
	if note := m.lacksWatchdog(); note != "" {
		plan.Notes = append(slices.Clone(plan.Notes), note)
	}
	return plan
}

// noteWatchdog adds lacksWatchdog to the status of a machine that has a system on trial, or would
// enter the next one only once.
func (m *Machine) noteWatchdog(s *status.Status) {
	chosen, err := m.Settings()
	always := err == nil && chosen.Fallback == settings.FallbackAuto
	tries := s.Trial != nil && s.Phase != pivot.PhaseFailed
	if !always && !tries {
		return
	}
	if note := m.lacksWatchdog(); note != "" {
		s.Notes = append(s.Notes, note)
	}
}
