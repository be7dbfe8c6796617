package source

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

	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/osimage/source/ocilayout"
)

// openSource opens the image that a reference names.
func openSource(ctx context.Context, ref imageref.Reference, sys *types.SystemContext) (types.ImageSource, error) {
	library, err := libraryRef(ref)
	if err != nil {
		return nil, err
	}
	switch ref.Transport() {
	case imageref.OCI:
		return ocilayout.OpenDirectory(library, ref.Name(), ref.Tag())
	case imageref.OCIArchive:
		source, err := ocilayout.OpenArchive(library, ref.Name(), ref.Tag())
		if errors.Is(err, ocilayout.ErrNotTar) { // perhaps compressed, which the library supports
			break
		}
		return source, err
	}
	return library.NewImageSource(ctx, sys)
}

// libraryRef converts a reference to the library's type.
func libraryRef(ref imageref.Reference) (types.ImageReference, error) {
	switch ref.Transport() {
	case imageref.OCI:
		return layout.NewReference(ref.Name(), ref.Tag())
	case imageref.OCIArchive:
		return ociarchive.NewReference(ref.Name(), ref.Tag())
	case imageref.Dir:
		return directory.NewReference(ref.Name())
	case imageref.DockerArchive:
		return dockerarchive.NewReference(ref.Name(), nil)
	}
	named, err := namedRef(ref)
	if err != nil {
		return nil, err
	}
	return docker.NewReference(named)
}

// namedRef converts the name of an image in a registry to the library's type.
func namedRef(ref imageref.Reference) (reference.Named, error) {
	named, err := reference.ParseNormalizedNamed(ref.Name())
	if err != nil {
		return nil, err
	}
	if digest := ref.Digest(); digest != "" {
		return reference.WithDigest(named, digestlib.Digest(digest))
	}
	return reference.WithTag(named, ref.Tag())
}
