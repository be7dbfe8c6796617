package firstboot

import (
	"context"
	"errors"
	"fmt"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/osimage/kargsd"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// Images gets OS images into the host's repository.
type Images interface {
	pivot.Images
	// Arguments are the kernel arguments that a deployment's commit in the repository
	// brings of its own.
	Arguments(commit string) (kargsd.Arguments, error)
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

// Resolve implements pivot.Images.
func (m *Machine) Resolve(ctx context.Context, image pivot.Image) (pivot.Image, error) {
	ref, err := imageref.Parse(image.Reference)
	if err != nil {
		return image, err
	}
	defer m.closeImage() // what is imported is named by its digest, not by this tag
	found, err := m.resolve(ctx, ref)
	if err != nil {
		return image, err
	}
	return pivot.Image{Reference: found.Reference.String(), Digest: found.Digest}, nil
}

// Check implements pivot.Images. The machine's own repository comes first.
func (m *Machine) Check(ctx context.Context, image pivot.Image) error {
	m.noteLabels()
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
	if ref.Remote() {
		if err := m.place().Network(ctx); err != nil {
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
func (m *Machine) Import(ctx context.Context, image pivot.Image, progress func(pivot.Amount)) (pivot.Image, error) {
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
	found.Accept = func(p ostree.PrepareRoot) error { return m.Engine.Accept(ctx, p) }
	result, err := found.Import(ctx, repo, func(p osimage.Progress) { progress(AmountOf(p)) })
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

// AmountOf is how far an import is.
func AmountOf(p osimage.Progress) pivot.Amount {
	a := pivot.Amount{Stage: pivot.Fetching, Done: p.FetchedBytes, Total: p.TotalBytes, Layers: p.Layers, Of: p.TotalLayers}
	if p.Writing {
		a.Stage = pivot.Writing
	}
	return a
}

// Release implements pivot.Images: it deletes the ref that kept an imported commit.
// Without that the repository would keep each system that ever was.
func (m *Machine) Release(image pivot.Image) error {
	repo, view, err := m.Host.OpenRepo()
	if err != nil {
		return err
	}
	return errors.Join(repo.DeleteRef(osimage.KeepAliveRef(image.Commit)), view.Close())
}
