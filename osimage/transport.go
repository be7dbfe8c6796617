package osimage

import (
	"context"
	"errors"

	digestlib "github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/directory"
	"go.podman.io/image/v5/docker"
	dockerarchive "go.podman.io/image/v5/docker/archive"
	"go.podman.io/image/v5/docker/reference"
	ociarchive "go.podman.io/image/v5/oci/archive"
	"go.podman.io/image/v5/oci/layout"
	"go.podman.io/image/v5/types"
)

// source opens the image that the reference names.
func (r Reference) source(ctx context.Context, sys *types.SystemContext) (types.ImageSource, error) {
	library, err := r.library()
	if err != nil {
		return nil, err
	}
	switch r.transport {
	case transportOCI:
		return openLayout(library, directoryFiles(r.name), r.tag)
	case transportOCIArchive:
		files, err := openArchive(r.name)
		if errors.Is(err, errNotTar) { // perhaps compressed
			return library.NewImageSource(ctx, sys)
		}
		if err != nil {
			return nil, err
		}
		return openLayout(library, files, r.tag)
	}
	return library.NewImageSource(ctx, sys)
}

// library is the library's form of the reference.
func (r Reference) library() (types.ImageReference, error) {
	switch r.transport {
	case transportOCI:
		return layout.NewReference(r.name, r.tag)
	case transportOCIArchive:
		return ociarchive.NewReference(r.name, r.tag)
	case transportDir:
		return directory.NewReference(r.name)
	case transportDockerArchive:
		return dockerarchive.NewReference(r.name, nil)
	}
	named, err := r.named()
	if err != nil {
		return nil, err
	}
	return docker.NewReference(named)
}

// named is the library's form of a registry's image name.
func (r Reference) named() (reference.Named, error) {
	named, err := reference.ParseNormalizedNamed(r.name)
	if err != nil {
		return nil, err
	}
	if r.digest != "" {
		return reference.WithDigest(named, digestlib.Digest(r.digest))
	}
	return reference.WithTag(named, r.tag)
}
