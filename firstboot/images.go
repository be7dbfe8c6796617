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

// imagesOrPulled are where a transaction's image comes from.
func (m *Machine) imagesOrPulled() Images {
	if m.Images != nil {
		return m.Images
	}
	if m.pulled == nil {
		m.pulled = &pulledImages{Machine: m}
	}
	return m.pulled
}

// pulledImages are what a machine's Puller pulls into the host's repository.
type pulledImages struct {
	*Machine
	opened *osimage.Opened // the image that was looked up last, if it is still open
}

var _ Images = (*pulledImages)(nil)

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
func (i *pulledImages) Resolve(ctx context.Context, image pivot.Image) (pivot.Image, error) {
	ref, err := imageref.Parse(image.Reference)
	if err != nil {
		return image, err
	}
	defer i.close() // what is imported is named by its digest, not by this tag
	found, err := i.resolveRetrying(ctx, ref)
	if err != nil {
		return image, err
	}
	return pivot.Image{Reference: found.Reference.String(), Digest: found.Digest}, nil
}

// Check implements pivot.Images. The machine's own repository comes first.
func (i *pulledImages) Check(ctx context.Context, image pivot.Image) error {
	i.noteLabels()
	ref, err := imageref.Parse(image.Reference)
	if err != nil {
		return err
	}
	repo, err := i.Host.ReadRepo()
	if err != nil {
		return err
	}
	if err := i.Host.CheckRepoWritable(); err != nil {
		return err
	}
	found, err := i.resolveRetrying(ctx, ref)
	if err != nil {
		return err
	}
	return found.Check(ctx, repo)
}

// resolveRetrying looks an image up, again and again while that can help.
func (i *pulledImages) resolveRetrying(ctx context.Context, ref imageref.Reference) (found *osimage.Opened, err error) {
	if ref.Remote() {
		if err := i.placeOrDefault().Network(ctx); err != nil {
			return nil, err
		}
	}
	err = i.Retry.Do(ctx, i.Progress.Waiting, func(ctx context.Context) (err error) {
		found, err = i.lookUp(ctx, ref)
		return err
	})
	return found, err
}

// lookUp opens an image, or finds it open: by its digest it is the same as when it
// was looked up before.
func (i *pulledImages) lookUp(ctx context.Context, ref imageref.Reference) (*osimage.Opened, error) {
	if i.opened != nil && i.opened.Reference == ref {
		return i.opened, nil
	}
	i.close()
	found, err := i.Puller.Open(ctx, ref)
	if err == nil {
		i.opened = found
	}
	return found, err
}

// closeImage ends the connections to the image that was looked up.
func (m *Machine) closeImage() {
	if m.pulled != nil {
		m.pulled.close()
	}
}

func (i *pulledImages) close() {
	if i.opened != nil {
		_ = i.opened.Close() // what counts was read, or has failed already
		i.opened = nil
	}
}

// Import implements pivot.Images on the host's own repository. What the preflight
// has looked up is not looked up again, but for another try after a failure.
func (i *pulledImages) Import(ctx context.Context, image pivot.Image, progress func(pivot.Amount)) (pivot.Image, error) {
	defer i.close()
	ref, err := imageref.Parse(image.Reference)
	if err != nil {
		return pivot.Image{}, err
	}
	found, err := i.lookUp(ctx, ref)
	if err != nil {
		return pivot.Image{}, err
	}
	repo, view, err := i.Host.OpenRepo()
	if err != nil {
		return pivot.Image{}, fmt.Errorf("cannot import %s: %w", image.Reference, err)
	}
	defer view.Close()
	found.Accept = func(p ostree.PrepareRoot) error { return i.Engine.Accept(ctx, p) }
	result, err := found.Import(ctx, repo, func(p osimage.Progress) { progress(AmountOf(p)) })
	if err != nil {
		return pivot.Image{}, err
	}
	if err := i.spaceInBoot(repo, result.Commit); err != nil {
		return pivot.Image{}, err
	}
	image.Commit, image.Version = result.Commit, result.Version
	for _, note := range result.Notes {
		i.Progress.Note(note)
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
func (i *pulledImages) Release(image pivot.Image) error {
	repo, view, err := i.Host.OpenRepo()
	if err != nil {
		return err
	}
	return errors.Join(repo.DeleteRef(osimage.KeepAliveRef(image.Commit)), view.Close())
}
