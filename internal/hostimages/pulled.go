package hostimages

import (
	"context"
	"fmt"

	"machine-pivot/internal/osimage"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/retry"
	"machine-pivot/pivot"
)

// Pulled pulls OS images into the host's repository. Check keeps the image open for Import,
// until Close.
type Pulled struct {
	Store
	// Network returns an error if there is no network and it cannot be set up. It is called
	// before a registry is used.
	Network func(ctx context.Context) error
	Retry   retry.Policy             // for opening an image, and for the preflight's requests
	Waiting func(error, retry.Pause) // called before each wait

	opened   *osimage.Opened    // the image that was opened last, if it is still open
	openedAs imageref.Reference // the name by which it was asked for
	packages int64              // bytes that Extensions.Check found to be needed on the repository's file system
}

var _ pivot.Images = (*Pulled)(nil)

// Resolve implements pivot.Images.
func (p *Pulled) Resolve(ctx context.Context, image pivot.Image) (pivot.Image, error) {
	defer p.Close() // the import opens the image by its digest, not by this tag
	found, err := p.retrying(ctx, image, p.lookUp)
	if err != nil {
		return image, err
	}
	if !image.Name.Moves() {
		image.Name = found.Reference
	}
	return pivot.Image{Name: image.Name, Digest: found.Digest, Instance: found.Instance}, nil
}

// Check implements pivot.Images. It checks the local repository before it uses the network.
func (p *Pulled) Check(ctx context.Context, image pivot.Image) error {
	p.noteLabels()
	repo, err := p.Host.ReadRepo()
	if err != nil {
		return err
	}
	if err := p.Host.CheckRepoWritable(); err != nil {
		return err
	}
	found, err := p.retrying(ctx, image, p.lookUp)
	if err != nil {
		return err
	}
	found.Besides = p.packages
	need, err := found.Check(ctx, repo)
	if err != nil {
		return err
	}
	return p.Retry.Do(ctx, p.Waiting, func(ctx context.Context) error {
		return p.checkImported(ctx, repo, image, need+p.packages)
	})
}

// retrying opens an image with open, and retries after transient failures.
func (p *Pulled) retrying(ctx context.Context, image pivot.Image, open func(context.Context, pivot.Image) (*osimage.Opened, error)) (found *osimage.Opened, err error) {
	if image.Name.Remote() {
		if err := p.Network(ctx); err != nil {
			return nil, err
		}
	}
	err = p.Retry.Do(ctx, p.Waiting, func(ctx context.Context) (err error) {
		found, err = open(ctx, image)
		return err
	})
	return found, err
}

// lookUp opens an image, unless it is open already. The open image can be used because its
// reference has a digest.
func (p *Pulled) lookUp(ctx context.Context, image pivot.Image) (*osimage.Opened, error) {
	if p.opened != nil && p.opened.Reference == image.Reference() && p.openedAs == image.Name {
		return p.opened, nil
	}
	p.Close()
	found, err := p.open(ctx, image)
	if err == nil {
		p.opened, p.openedAs = found, image.Name
	}
	return found, err
}

// open opens an image by its digest, if that is known. The signature policy is about the name by which it was asked for.
func (p *Pulled) open(ctx context.Context, image pivot.Image) (*osimage.Opened, error) {
	return p.Puller.OpenPinned(ctx, image.Name, image.Reference().Digest())
}

// Close closes the image that was opened last, if it is still open.
func (p *Pulled) Close() {
	if p.opened != nil {
		_ = p.opened.Close() // all data was read, or an error is returned already
		p.opened = nil
	}
}

// Import implements pivot.Images on the host's repository. It does not open the image again if
// Check has left it open. After a failed Import the image is opened again.
func (p *Pulled) Import(ctx context.Context, image pivot.Image, progress func(pivot.Amount)) (pivot.Image, error) {
	defer p.Close()
	found, err := p.lookUp(ctx, image)
	if err != nil {
		return pivot.Image{}, err
	}
	repo, view, err := p.Host.OpenRepo()
	if err != nil {
		return pivot.Image{}, fmt.Errorf("cannot import %s: %w", image.Reference(), err)
	}
	defer view.Close()
	found.Accept = func(root ostree.PrepareRoot) error { return p.Engine.CheckPrepareRoot(ctx, root) }
	found.Besides = p.packages
	var need int64
	found.Bind = func(images osimage.BoundImages, outstanding int64) (err error) {
		need, err = p.checkBindable(ctx, repo, images, outstanding)
		return err
	}
	result, err := found.Import(ctx, repo, func(so osimage.Progress) { progress(AmountOf(so)) })
	if err != nil {
		return pivot.Image{}, err
	}
	if err := p.Engine.CheckSpace(ctx, result.Commit); err != nil {
		return pivot.Image{}, err
	}
	commit, err := ostree.ParseChecksum(result.Commit)
	if err == nil {
		err = p.pullBound(ctx, repo, commit, need, p.packages)
	}
	if err != nil {
		return pivot.Image{}, err
	}
	image.Commit, image.Version, image.Instance = result.Commit, result.Version, found.Instance
	for _, note := range result.Notes {
		p.Note(note)
	}
	image.Native = result.Format.Native()
	return image, nil
}

// AmountOf converts the progress of an import.
func AmountOf(p osimage.Progress) pivot.Amount {
	a := pivot.Amount{Stage: pivot.Fetching, Done: p.FetchedBytes, Total: p.TotalBytes, Layers: p.Layers, Of: p.TotalLayers}
	if p.Writing {
		a.Stage = pivot.Writing
	}
	return a
}
