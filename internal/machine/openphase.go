package machine

import (
	"context"
	"fmt"
	"slices"

	"machine-pivot/internal/status"
	"machine-pivot/pivot"
	systemdunits "machine-pivot/systemd-units"
)

// correctOpenPhase corrects the phase of a first boot that is open by what systemd does with its unit. The phase is
// failed once the unit has failed, whatever the last run has left: nothing starts the unit again in this boot. It is
// applying as long as the unit continues, also between two tries. What is committed or on trial continues without the
// unit. It returns whether a first boot is open, and whether its unit continues.
func (m *Machine) correctOpenPhase(ctx context.Context, s *status.Status) (open, goesOn bool) {
	open, err := m.firstBootOpen()
	services := m.Services()
	if err != nil || !open || services == nil {
		return open, false
	}
	unit, err := services.State(ctx, systemdunits.FirstBoot)
	if err != nil {
		return open, false // the phase of the last run is all that is known
	}
	goesOn = unit.Queued || unit.Active == "activating" || unit.Active == "active"
	switch {
	case unit.Active == "failed" && slices.Contains([]pivot.Phase{pivot.PhaseIdle, pivot.PhaseApplying, pivot.PhaseInterrupted}, s.Phase):
		s.Phase = pivot.PhaseFailed
		s.Next = "systemctl restart " + systemdunits.FirstBoot
		if unit.Result == "start-limit-hit" {
			s.Next = "systemctl reset-failed " + systemdunits.FirstBoot + ", then " + s.Next
		}
		s.Notes = append(s.Notes, fmt.Sprintf("%s has given up (%s)", systemdunits.FirstBoot, unit.Result))
		if s.Error == nil {
			s.Error = &pivot.Failure{
				Message: fmt.Sprintf("%s ended without a word of its own: %s", systemdunits.FirstBoot, unit.Result), Hint: "journalctl -u " + systemdunits.FirstBoot,
			}
		}
	case goesOn && (s.Phase == pivot.PhaseFailed || s.Phase == pivot.PhaseInterrupted || s.Phase == pivot.PhaseIdle && s.Error != nil):
		s.Phase = pivot.PhaseApplying
		s.Notes = append(s.Notes, "the last try failed; "+systemdunits.FirstBoot+" tries again")
	}
	return open, goesOn
}
