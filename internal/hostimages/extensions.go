package hostimages

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"machine-pivot/internal/host"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/osimage/layer"
	"machine-pivot/pivot"
)

const (
	// repositoryIn is the directory of the package repository in an extensions image
	// (machine-config-daemon, pkg/daemon/update.go).
	repositoryIn = "usr/share/rpm-ostree/extensions"
	// fetchedIn is the host's directory for the repository while packages are installed from it.
	fetchedIn = "/var/cache/pivot/extensions"
)

// Extensions extracts package repositories from extensions images. Nothing from these images
// is stored in the ostree repository.
type Extensions struct{ from *Pulled }

var _ pivot.Repositories = Extensions{}

// Extensions returns an Extensions that opens extensions images in the same way as OS images.
func (p *Pulled) Extensions() Extensions { return Extensions{p} }

// Check implements pivot.Repositories.
func (e Extensions) Check(ctx context.Context, image pivot.Image) error {
	return e.with(ctx, image, func(found *osimage.Opened) error {
		free, withRepo, err := e.room()
		if err == nil {
			err = found.CheckExtract(free)
		}
		if err == nil && withRepo {
			e.from.packages = found.Bytes
		}
		return err
	})
}

// room returns how many bytes the file system of /var has room for, and whether it is the repository's. Then what an
// image is to take of it counts, too, and its reserve stays free.
func (e Extensions) room() (free int64, withRepo bool, err error) {
	if free, err = e.from.Host.Free(e.path("/var")); err != nil {
		return 0, false, err
	}
	repo, err := e.from.Host.ReadRepo()
	if err != nil {
		return 0, false, err
	}
	if shared, err := host.SameFileSystem(e.path("/var"), repo.Path()); err != nil || !shared {
		return free, false, err
	}
	room, err := repo.Room()
	return min(free, room), true, err
}

// Fetch implements pivot.Repositories.
func (e Extensions) Fetch(ctx context.Context, image pivot.Image, progress func(pivot.Amount)) (pivot.Repository, error) {
	r := pivot.Repository{Dir: fetchedIn}
	err := e.with(ctx, image, func(found *osimage.Opened) error {
		unpacked, err := e.unpack(len(found.Layers))
		if err == nil {
			err = found.Extract(ctx, repositoryIn, func(n int) layer.FileSink { return unpacked.part(n) },
				func(p osimage.Progress) { progress(AmountOf(p)) })
		}
		if err == nil {
			err = unpacked.join()
		}
		return err
	})
	if err == nil {
		r.Names, err = repositoryPackages(e.path(fetchedIn))
	}
	if err != nil {
		return r, errors.Join(err, e.Release())
	}
	return r, nil
}

// unpack begins to unpack a repository, after what an earlier run has left is removed.
func (e Extensions) unpack(layers int) (*unpackedRepository, error) {
	if err := e.Release(); err != nil {
		return nil, err
	}
	free, _, err := e.room()
	if err != nil {
		return nil, err
	}
	return unpackRepository(e.path(fetchedIn), layers, free)
}

// Release implements pivot.Repositories.
func (e Extensions) Release() error { return os.RemoveAll(e.path(filepath.Dir(fetchedIn))) }

func (e Extensions) path(name string) string { return e.from.Host.Path(name) }

// with opens an image, calls work with it and closes it.
func (e Extensions) with(ctx context.Context, image pivot.Image, work func(*osimage.Opened) error) error {
	found, err := e.from.retrying(ctx, image, e.from.open)
	if err != nil {
		return err
	}
	defer found.Close() // all data was read, or an error is returned already
	return work(found)
}
