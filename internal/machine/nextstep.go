package machine

import (
	"machine-pivot/internal/status"
	"machine-pivot/pivot"
	systemdunits "machine-pivot/systemd-units"
)

// nextStep returns what a person has to do so that a machine continues from what its status says; "" if it continues by
// itself, or nothing is left to do. held says that a feature holds the transaction, firstBoot that the first boot is open, and
// goesOn that systemd runs it, or is going to. An error has its own hint.
func nextStep(s status.Status, held, firstBoot, goesOn bool) string {
	const sameCommand = "run the same command again"
	runs := s.LastCommand != nil && s.LastCommand.Result == status.ResultRunning
	switch {
	case s.Next != "", goesOn, runs, s.Cluster != nil: // the node's agent continues
		return s.Next
	case s.Phase == pivot.PhaseCommitted && s.Pending != nil && !held:
		return "systemctl reboot"
	case s.Phase == pivot.PhaseInterrupted && firstBoot:
		return "systemctl restart " + systemdunits.FirstBoot
	case s.Phase == pivot.PhaseFailed && firstBoot:
		return "man pivot-failed"
	case s.Phase == pivot.PhaseInterrupted, s.Phase == pivot.PhaseUndone && !firstBoot:
		return sameCommand
	}
	return ""
}
