package firstboot

import (
	"context"
	"errors"
	"fmt"

	"machine-pivot/fault"
	"machine-pivot/osimage"
	"machine-pivot/osimage/imageref"
	"machine-pivot/osimage/kargsd"
	"machine-pivot/ostree"
	"machine-pivot/pivot"
)

// Images gets OS images into the host's repository.
type Images interface {
	// Check finds out, without a write, whether Import could succeed: the image is
	// there, may be used, and would fit.
	Check(ctx context.Context, image pivot.Image) error
	pivot.Images
	// Arguments are the kernel arguments that a deployment's commit in the repository
	// brings of its own.
	Arguments(commit string) (kargsd.Arguments, error)
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

// image is what a reference names; it has no digest yet if that is a tag.
func image(text string) (pivot.Image, error) {
	if text == "" {
		return pivot.Image{}, nil
	}
	ref, err := imageref.Parse(text)
	if err != nil {
		return pivot.Image{}, fault.New(fault.BadInput, "%w", err)
	}
	return pivot.Image{Reference: ref.String(), Digest: ref.Digest()}, nil
}

// pin looks up the target's image if it is named by a tag: once, so that what is
// planned, pulled and proven is the same content. What would fail whatever the tag
// names is found first, without the network: by the machine's state, and by checks
// of the plan.
func (m *Machine) pin(ctx context.Context, target pivot.Target, checks ...check) (pivot.Target, error) {
	if target.Image.IsZero() || target.Image.Digest != "" {
		return target, nil
	}
	if err := m.checkWithout(target, checks...); err != nil {
		return target, err
	}
	ref, err := imageref.Parse(target.Image.Reference)
	if err != nil {
		return target, err
	}
	defer m.closeImage() // what is imported is named by its digest, not by this tag
	found, err := m.resolve(ctx, ref)
	if err != nil {
		return target, err
	}
	target.Image = pivot.Image{Reference: found.Reference.String(), Digest: found.Digest}
	return target, nil
}

// check is one of a plan, without the network.
type check func(pivot.Plan) error

// checkWithout checks a target whose image is not known yet, if something changes
// whichever it is.
func (m *Machine) checkWithout(target pivot.Target, checks ...check) error {
	target.Image = pivot.Image{}
	state, err := m.Host.Observe(target.Paths())
	if err != nil {
		return err
	}
	plan, err := pivot.Diff(state, target)
	if err != nil || !plan.Changed {
		return err
	}
	for _, check := range checks {
		if err := check(plan); err != nil {
			return err
		}
	}
	_, err = m.partition(state, target) // the preflight tells its warnings
	return err
}

// Check implements Images. The machine's own repository comes first.
func (m *Machine) Check(ctx context.Context, image pivot.Image) error {
	ref, err := imageref.Parse(image.Reference)
	if err != nil {
		return err
	}
	repo, err := m.Host.ReadRepo()
	if err != nil {
		return err
	}
	if err := m.Host.CheckRepoWritable(); err != nil {
		return err
	}
	found, err := m.resolve(ctx, ref)
	if err != nil {
		return err
	}
	return found.Check(ctx, repo)
}

// resolve looks an image up, again and again while that can help.
func (m *Machine) resolve(ctx context.Context, ref imageref.Reference) (found *osimage.Opened, err error) {
	if m.Early != nil && ref.Remote() {
		if err := m.Early.Network(ctx); err != nil {
			return nil, err
		}
	}
	err = m.Retry.Do(ctx, m.Progress.Waiting, func(ctx context.Context) (err error) {
		found, err = m.lookUp(ctx, ref)
		return err
	})
	return found, err
}

// lookUp opens an image, or finds it open: by its digest it is the same as when it
// was looked up before.
func (m *Machine) lookUp(ctx context.Context, ref imageref.Reference) (*osimage.Opened, error) {
	if m.opened != nil && m.opened.Reference == ref {
		return m.opened, nil
	}
	m.closeImage()
	found, err := m.Puller.Open(ctx, ref)
	if err == nil {
		m.opened = found
	}
	return found, err
}

// closeImage ends the connections to the image that was looked up.
func (m *Machine) closeImage() {
	if m.opened != nil {
		_ = m.opened.Close() // what counts was read, or has failed already
		m.opened = nil
	}
}

// Import implements pivot.Images on the host's own repository. What the preflight
// has looked up is not looked up again, but for another try after a failure.
func (m *Machine) Import(ctx context.Context, image pivot.Image, progress func(done, total int64)) (pivot.Image, error) {
	defer m.closeImage()
	ref, err := imageref.Parse(image.Reference)
	if err != nil {
		return pivot.Image{}, err
	}
	found, err := m.lookUp(ctx, ref)
	if err != nil {
		return pivot.Image{}, err
	}
	repo, view, err := m.Host.OpenRepo()
	if err != nil {
		return pivot.Image{}, fmt.Errorf("cannot import %s: %w", image.Reference, err)
	}
	defer view.Close()
	found.Accept = func(p ostree.PrepareRoot) error { return m.accept(ctx, p) }
	result, err := found.Import(ctx, repo, func(p osimage.Progress) { progress(p.FetchedBytes, p.TotalBytes) })
	if err != nil {
		return pivot.Image{}, err
	}
	if err := m.spaceInBoot(repo, result.Commit); err != nil {
		return pivot.Image{}, err
	}
	image.Commit, image.Version = result.Commit, result.Version
	for _, note := range result.Notes {
		m.Progress.Note(note)
	}
	if result.Format.Native() {
		image.Container = ref.OstreeReference()
	}
	return image, nil
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
