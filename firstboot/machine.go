package firstboot

import (
	"context"
	"errors"
	"fmt"

	"machine-pivot/fault"
	"machine-pivot/host"
	"machine-pivot/osimage"
	"machine-pivot/osimage/imageref"
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
}

// open reads the journal and notes which boot this is.
func (m *Machine) open() error {
	if id, err := m.Host.BootID(); err == nil { // if not, Observe says so
		m.Progress.BootID = id
	}
	return m.Progress.Open()
}

// Images gets OS images into the host's repository.
type Images interface {
	// Check finds out, without a write, whether Import could succeed: the image is
	// there, may be used, and would fit.
	Check(ctx context.Context, image pivot.Image) error
	pivot.Images
	// Release lets go of what the import kept, once a deployment keeps the image.
	Release(image pivot.Image) error
}

// images are where a transaction's image comes from.
func (m *Machine) images() Images {
	if m.Images != nil {
		return m.Images
	}
	return m
}

// image parses a reference and pins it: a tag is looked up once, now, so that
// what is planned, pulled and proven is the same content.
func (m *Machine) image(ctx context.Context, text string) (pivot.Image, error) {
	ref, err := imageref.Parse(text)
	if err != nil {
		return pivot.Image{}, fault.New(fault.BadInput, "%w", err)
	}
	if d := ref.Digest(); d != "" {
		return pivot.Image{Reference: ref.String(), Digest: d}, nil
	}
	found, err := m.resolve(ctx, text)
	if err != nil {
		return pivot.Image{}, err
	}
	return pivot.Image{Reference: found.Reference.String(), Digest: found.Digest}, nil
}

// apply carries out the plan that leads from state to target and reboots.
func (m *Machine) apply(ctx context.Context, state pivot.State, target pivot.Target, attempt int) error {
	t := pivot.Transaction{Images: m.images(), Engine: m.Engine, Retry: m.Retry, Progress: m.Progress}
	if m.Early != nil {
		t.Ready = func() error { return m.Early.CloseIgnition(m.Host.Disk) }
	}
	if err := t.Run(ctx, state, target, attempt); err != nil {
		return err
	}
	m.release()
	return nil
}

// release lets go of what the import kept: the deployment keeps the image now.
// The machine is well also if that fails, so it is only noted.
func (m *Machine) release() {
	image := m.Progress.Record.Target.Image
	if image.Commit == "" {
		return
	}
	if err := m.images().Release(image); err != nil {
		m.Progress.Note(fmt.Sprintf("cannot give up the ref that kept commit %s: %v", image.Commit, err))
	}
}

// Release implements Images: it deletes the ref that kept an imported commit.
// Without that the repository would keep each system that ever was.
func (m *Machine) Release(image pivot.Image) error {
	repo, view, err := m.Host.OpenRepo()
	if err != nil {
		return err
	}
	return errors.Join(repo.DeleteRef(osimage.KeepAliveRef(image.Commit)), view.Close())
}

// decide holds what was meant against what is true.
func (m *Machine) decide(state pivot.State, target pivot.Target) pivot.Decision {
	record := m.Progress.Record
	return pivot.Decide(record, pivot.Facts{
		SameBoot:        record.BootID == state.BootID,
		SameTarget:      record.Target.Same(target),
		AtTarget:        len(pivot.Prove(state, target)) == 0,
		PendingAtTarget: state.Pending() && len(pivot.Prove(state.AsIfRebooted(), target)) == 0,
	})
}

// recall adds to target what an earlier boot learned of its image.
func (m *Machine) recall(target pivot.Target) pivot.Target {
	if known := m.Progress.Record.Target.Image; known.Same(target.Image) {
		target.Image.Commit, target.Image.Version = known.Commit, known.Version
	}
	return target
}

// Import implements pivot.Images on the host's own repository.
func (m *Machine) Import(ctx context.Context, image pivot.Image, progress func(done, total int64)) (pivot.Image, error) {
	ref, err := imageref.Parse(image.Reference)
	if err != nil {
		return pivot.Image{}, err
	}
	found, err := m.Puller.Resolve(ctx, ref)
	if err != nil {
		return pivot.Image{}, err
	}
	repo, view, err := m.Host.OpenRepo()
	if err != nil {
		return pivot.Image{}, fmt.Errorf("cannot import %s: %w", image.Reference, err)
	}
	defer view.Close()
	puller := *m.Puller
	puller.Progress = func(p osimage.Progress) { progress(p.FetchedBytes, p.TotalBytes) }
	result, err := puller.Import(ctx, found, repo)
	if err != nil {
		return pivot.Image{}, err
	}
	if err := m.spaceInBoot(repo, result.Commit); err != nil {
		return pivot.Image{}, err
	}
	image.Commit, image.Version = result.Commit, result.Version
	if result.Format == osimage.Encapsulated {
		image.Container = ref.OstreeReference()
	}
	return image, nil
}
