// Package osimage imports OS images: it resolves a reference, checks the image against the
// host's signature policy, and writes the image's ostree commit into a repository. Every byte
// is verified, and no container is unpacked.
//
// Package imageref parses image references, package source fetches images, and package layer reads and
// merges their layers. This package combines them: it reads several layers at once into one ostree.Import,
// writes the refs and the merge commit of an ostree-native container as ostree-ext does, and reports progress. It reads
// what an image defines for bootc, in its commit: kernel arguments (kargs.d) and application images that it binds
// ("logically bound images", bootc's manual).
//
// Formats. A legacy image (machine-os-content) is a container image with an archive
// repository at /srv/repo; the label com.coreos.ostree-commit or the only ref names the
// commit. An ostree-native container has the commit's objects in its layers
// ("encapsulated"), and may have derived layers on top ("layered"). An image of a whole OS
// without a commit ("plain") has derived layers only.
//
// Limits. At most eight layers are fetched at once, and four of them decompressed. The repository must be in bare mode, and
// must have room for the compressed layers before anything is written.
package osimage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"

	"machine-pivot/internal/guard"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/osimage/source"
	"machine-pivot/internal/ostree"
)

// Puller reads images with a host's configuration. Architecture is the one that images must be for, by any of its names.
// Images for another one can be opened, but not imported.
type Puller source.Host

// Progress is the progress of an import.
type Progress struct {
	FetchedBytes, TotalBytes int64 // of compressed layers; bytes that are fetched again count in both
	Objects                  int   // ostree objects seen
	Layers, TotalLayers      int   // complete layers, and layers to read
	Writing                  bool  // all layers are read; only local work remains
	Done                     bool  // the import is complete
}

// Opened is an image that Puller.Open has opened: manifest and config are read, and the
// host's signature policy has accepted it. It can be imported, and must be closed.
type Opened struct {
	Image
	// Accept may be nil. Import calls it with the prepare-root.conf of the image as soon as
	// that is known. It returns an error if the host cannot make a deployment that boots with
	// these settings. The error ends the import.
	Accept func(ostree.PrepareRoot) error
	// Bind may be nil. Import calls it once with the application images that the image binds, as
	// soon as these are known and before a ref is set. outstanding is the compressed size, in bytes,
	// of what is still to be fetched of the image itself, and Besides. The error ends the import.
	Bind func(images BoundImages, outstanding int64) error
	// Besides is what else is still to be written to the repository's file system, in bytes. Check and
	// Import add it to what the image needs.
	Besides int64

	machine   platform // the platform that the image must be for
	stated    platform // the platform that the image states
	source    *source.Image
	requested imageref.Reference // the reference that was passed to Open; it may have a tag
	root      string             // the host's root directory
	log       func(string)
}

// Open reads the manifest and config of an image for the puller's platform, and checks the
// image against the host's signature policy. The result is pinned to its digest.
func (p *Puller) Open(ctx context.Context, ref imageref.Reference) (opened *Opened, err error) {
	return p.OpenPinned(ctx, ref, ref.Digest())
}

// OpenPinned is Open for an image that was asked for by a name, perhaps with a tag, that was resolved to a digest; "": it
// was not. The signature policy's rule for that name decides.
func (p *Puller) OpenPinned(ctx context.Context, asked imageref.Reference, digest string) (opened *Opened, err error) {
	ref := asked
	if digest != "" {
		ref = asked.Pinned(digest)
	}
	err = guard.Call(func() error {
		image, err := p.host().Open(ctx, ref, asked)
		if err != nil {
			return err
		}
		opened = &Opened{Image: imageOf(image), machine: p.target(), stated: statedBy(image), source: image, requested: ref, root: cmp.Or(p.Root, "/"), log: p.note}
		for _, note := range image.Notes {
			p.note(note)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot resolve image %s: %w", ref, err)
	}
	return opened, nil
}

// Size opens an image of any kind and returns the size of its compressed layers in bytes. The image must be for the
// puller's platform, and the host's signature policy must accept it.
func (p *Puller) Size(ctx context.Context, ref imageref.Reference) (size int64, err error) {
	opened, err := p.Open(ctx, ref)
	if err != nil {
		return 0, err
	}
	return opened.Bytes, errors.Join(opened.CheckRuns(), opened.Close())
}

// CheckRuns returns an error if the image is for another platform than the puller's.
func (o *Opened) CheckRuns() error {
	if err := o.machine.checkRuns(o.stated); err != nil {
		return fmt.Errorf("cannot use image %s: %w", o.requested, err)
	}
	return nil
}

func (p *Puller) note(message string) {
	if p.Log != nil {
		p.Log(message)
	}
}

// Arguments returns the kernel arguments that the image of a commit in a repository brings
// for the puller's architecture.
func (p *Puller) Arguments(repo *ostree.Repo, commit ostree.Checksum) (Arguments, error) {
	return ReadKargs(repo, commit, p.target().architecture)
}

// Close ends the connections to the image's source.
func (o *Opened) Close() error { return o.source.Close() }

func (p *Puller) host() *source.Host {
	host := source.Host(*p)
	// If no architecture is chosen, the library also considers the processor's variant.
	if host.Architecture = p.target().architecture; host.Architecture == runtime.GOARCH {
		host.Architecture = ""
	}
	return &host
}
