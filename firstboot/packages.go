package firstboot

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"machine-pivot/internal/encapsulated"
	"machine-pivot/internal/machineconfig/extensions"
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

// packages are what a MachineConfig asks of packages. What others asked for before it, and
// this one does not, shall be as the image has it.
func packages(asked *encapsulated.Desired, before ...*encapsulated.Desired) (pivot.Packages, error) {
	p := packagesFor(asked.KernelType, asked.Extensions)
	for _, b := range before {
		for _, old := range packagesFor(b.KernelType, b.Extensions).Wishes {
			p.Add(pivot.PackageDefault, old.Name)
		}
	}
	var err error
	p.Source, err = image(asked.ExtensionsImage)
	return p, err
}

// packagesFor are what a kernel type and extensions mean for packages. The default kernel is
// the image's own, so it is no wish.
func packagesFor(kernelType string, names []string) (p pivot.Packages) {
	add := func(of extensions.Packages) {
		p.Add(pivot.PackagePresent, of.Needed...)
		p.Add(pivot.PackageOffered, of.Offered...)
	}
	if kernelType != "" && kernelType != extensions.KernelDefault {
		add(extensions.Kernel(kernelType))
		for _, other := range extensions.KernelTypes() {
			if other != kernelType {
				p.Add(pivot.PackageAbsent, extensions.Kernel(other).Needed...)
			}
		}
	}
	for _, name := range names {
		add(extensions.Of(name))
	}
	return p
}

// extensionImages get repositories of packages from images of extensions.
type extensionImages struct{ *Machine }

var _ pivot.Repositories = extensionImages{}

// Check implements pivot.Repositories.
func (i extensionImages) Check(ctx context.Context, image pivot.Image) error {
	return i.with(ctx, image, func(found *osimage.Opened) error {
		free, err := i.Host.Free(i.Host.Path("/var"))
		if err != nil {
			return err
		}
		return found.CheckExtract(free)
	})
}

// Fetch implements pivot.Repositories.
func (i extensionImages) Fetch(ctx context.Context, image pivot.Image, progress func(pivot.Amount)) (pivot.Repository, error) {
	r := pivot.Repository{Dir: fetchedIn}
	err := i.with(ctx, image, func(found *osimage.Opened) error {
		unpacked, err := rpmrepo.Unpack(i.Host.Path(fetchedIn), len(found.Layers))
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
		r.Names, err = rpmrepo.Names(i.Host.Path(fetchedIn))
	}
	if err != nil {
		return r, errors.Join(err, i.Release())
	}
	return r, nil
}

// Release implements pivot.Repositories.
func (i extensionImages) Release() error { return os.RemoveAll(i.Host.Path(filepath.Dir(fetchedIn))) }

// with opens an image for work.
func (i extensionImages) with(ctx context.Context, image pivot.Image, work func(*osimage.Opened) error) error {
	ref, err := imageref.Parse(image.Reference)
	if err != nil {
		return err
	}
	opened := &pulledImages{Machine: i.Machine}
	defer opened.close()
	found, err := opened.resolveRetrying(ctx, ref)
	if err != nil {
		return err
	}
	return work(found)
}
