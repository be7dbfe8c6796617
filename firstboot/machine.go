package firstboot

import (
	"cmp"
	"context"

	"machine-pivot/host"
	"machine-pivot/hostfiles"
	"machine-pivot/kargs"
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
	// ImageKargs goes before the one of the machine's settings, unless it is "".
	ImageKargs host.ImageKargs

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
	t := pivot.Transaction{Images: m.images(), Engine: m.Engine, Retry: m.Retry, Progress: m.Progress, Learn: m.learn}
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

// recall adds to target what is chosen for the kernel arguments of its image's own,
// and what an earlier boot learned of that image. A choice that was committed goes
// before the settings: the next boot is to prove it, or to try it again.
func (m *Machine) recall(target pivot.Target) (pivot.Target, error) {
	settings, err := m.settings()
	if err != nil || target.Image.IsZero() {
		return target, err
	}
	record := m.Progress.Record
	known := record.Target
	apply := settings.ImageKargs == host.ImageKargsApply
	if !known.Image.Same(target.Image) {
		known = pivot.Target{}
	} else {
		target.Image.Commit, target.Image.Version = known.Image.Commit, known.Image.Version
		if m.ImageKargs == "" && (record.WasCommitted() || record.Phase == pivot.Done) {
			apply = known.Kargs.Image != nil
		}
	}
	if apply {
		target.Kargs.Image = cmp.Or(known.Kargs.Image, &kargs.ImageChange{})
	}
	return target, nil
}
