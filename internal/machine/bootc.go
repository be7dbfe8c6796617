package machine

import (
	"cmp"

	"machine-pivot/pivot"
)

// TellBootc keeps bootc's status of the next boot true, on a machine that it manages, if this run has written the
// journal, and so may have changed the next boot. Every command that may do so ends with it. It says nothing while the
// running system is on trial. The next boot is the old one then, and who waits for a reboot, as kured, would end the
// trial by it. A failure is only noted: the change itself is made.
func (m *Machine) TellBootc() {
	if !m.Progress.Journaled() || !m.Where().Started() || !m.Host.OfBootc() {
		return
	}
	if demand, _ := m.Joined().Demand(nil); demand >= pivot.DemandReturn {
		return
	}
	state, err := m.Host.Systems()
	if err == nil {
		next := state.Default
		err = m.Host.TellBootc(state.Pending(), cmp.Or(next.Manifest, next.Image.Digest, next.Commit))
	}
	if err != nil {
		m.Progress.Note(err.Error())
	}
}
