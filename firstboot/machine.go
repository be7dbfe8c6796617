package firstboot

import (
	"context"

	"machine-pivot/host"
	"machine-pivot/hostfiles"
	"machine-pivot/osimage"
	"machine-pivot/pivot"
)

// Machine is what a pivot works on and with.
type Machine struct {
	Host     *host.Host
	Puller   *osimage.Puller
	Images   Images // nil: what Puller pulls, in the host's repository
	Engine   pivot.Engine
	Retry    pivot.Retry
	Progress *pivot.Progress
	Early    Early // nil in the started system
	// RebootMethod goes before the one of the machine's settings, unless it is "".
	RebootMethod host.RebootMethod

	opened   *osimage.Opened             // the image that was looked up last, if it is still open
	contents map[hostfiles.Digest][]byte // of the files that this run has read
}

// open reads the journal and notes which boot this is.
func (m *Machine) open() error {
	if id, err := m.Host.BootID(); err == nil { // if not, Observe says so
		m.Progress.BootID = id
	}
	return m.Progress.Open()
}

// apply carries out the plan that leads from state to target. The contents of the
// files to keep are what another boot could not read again.
func (m *Machine) apply(ctx context.Context, state pivot.State, target pivot.Target, keep []hostfiles.Entry, attempt int) (err error) {
	t := pivot.Transaction{Images: m.images(), Engine: m.Engine, Retry: m.Retry, Progress: m.Progress}
	if t.Files, err = m.files(target.Files); err != nil {
		return err
	}
	if t.Keep, err = m.files(keep); err != nil {
		return err
	}
	if m.Early != nil {
		t.Ready = m.leaveInitramfs
	}
	if err := t.Run(ctx, state, target, attempt); err != nil {
		return err
	}
	m.release()
	return nil
}

// decide holds what was meant against what is true.
func (m *Machine) decide(state pivot.State, target pivot.Target) pivot.Decision {
	return pivot.Decide(m.Progress.Record, m.facts(state, target))
}

func (m *Machine) facts(state pivot.State, target pivot.Target) pivot.Facts {
	record := m.Progress.Record
	return pivot.Facts{
		SameBoot:        record.BootID == state.BootID,
		SameTarget:      record.Target.Same(target),
		AtTarget:        len(pivot.Prove(state, target)) == 0,
		PendingAtTarget: state.Pending() && len(pivot.Prove(state.AsIfRebooted(), target)) == 0,
	}
}

// recall adds to target what an earlier boot learned of its image.
func (m *Machine) recall(target pivot.Target) pivot.Target {
	if known := m.Progress.Record.Target.Image; known.Same(target.Image) {
		target.Image.Commit, target.Image.Version = known.Commit, known.Version
	}
	return target
}
