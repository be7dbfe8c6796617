package hostimages

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"machine-pivot/internal/osimage"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/osimage/layer"
	"machine-pivot/internal/rpmrepo"
	"machine-pivot/pivot"
)

const (
	// repositoryIn is where an image of extensions has its repository (the
	// machine-config operator's daemon: pkg/daemon/update.go).
	repositoryIn = "usr/share/rpm-ostree/extensions"
	// fetchedIn is where the host keeps one as long as packages are taken from it.
	fetchedIn = "/var/cache/pivot/extensions"
)

// Extensions get repositories of packages from images of extensions. Nothing of these comes
// into the ostree repository.
type Extensions struct{ from *Pulled }

var _ pivot.Repositories = Extensions{}

// Extensions get images of extensions from where OS images are pulled from.
func (p *Pulled) Extensions() Extensions { return Extensions{p} }

// Check implements pivot.Repositories.
func (e Extensions) Check(ctx context.Context, image pivot.Image) error {
	return e.with(ctx, image, func(found *osimage.Opened) error {
		free, err := e.from.Host.Free(e.path("/var"))
		if err != nil {
			return err
		}
		return found.CheckExtract(free)
	})
}

// Fetch implements pivot.Repositories.
func (e Extensions) Fetch(ctx context.Context, image pivot.Image, progress func(pivot.Amount)) (pivot.Repository, error) {
	r := pivot.Repository{Dir: fetchedIn}
	err := e.with(ctx, image, func(found *osimage.Opened) error {
		unpacked, err := rpmrepo.Unpack(e.path(fetchedIn), len(found.Layers))
		if err == nil {
			err = found.Extract(ctx, repositoryIn, func(n int) layer.FileSink { return unpacked.Part(n) },
				func(p osimage.Progress) { progress(AmountOf(p)) })
		}
		if err == nil {
			err = unpacked.Join()
		}
		return err
	})
	if err == nil {
		r.Names, err = rpmrepo.Names(e.path(fetchedIn))
	}
	if err != nil {
		return r, errors.Join(err, e.Release())
	}
	return r, nil
}

// Release implements pivot.Repositories.
func (e Extensions) Release() error { return os.RemoveAll(e.path(filepath.Dir(fetchedIn))) }

func (e Extensions) path(name string) string { return e.from.Host.Path(name) }

// with opens an image for work.
func (e Extensions) with(ctx context.Context, image pivot.Image, work func(*osimage.Opened) error) error {
	ref, err := imageref.Parse(image.Reference)
	if err != nil {
		return err
	}
	found, err := e.from.retrying(ctx, ref, e.from.Puller.Open)
	if err != nil {
		return err
	}
	defer found.Close() // what counts was read, or has failed already
	return work(found)
}
