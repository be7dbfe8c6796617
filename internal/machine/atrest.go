package machine

import (
	"slices"

	"machine-pivot/internal/status"
	"machine-pivot/pivot"
)

// AtRest reports whether nothing is under way that changes the phase of a status by itself. No command runs, no first
// boot is open, and nothing waits for a reboot, for the end of a trial or for the next try.
func (m *Machine) AtRest(s status.Status) bool {
	open, err := m.firstBootOpen()
	runs := s.LastCommand != nil && s.LastCommand.Result == status.ResultRunning
	return err == nil && !open && !runs && slices.Contains([]pivot.Phase{pivot.PhaseIdle, pivot.PhaseDone, pivot.PhaseUndone}, s.Phase)
}
