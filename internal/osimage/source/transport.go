package source

import (
	"context"
	"strings"

	digestlib "github.com/opencontainers/go-digest"
	librarydir "go.podman.io/image/v5/directory"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	ocilayout "go.podman.io/image/v5/oci/layout"
	"go.podman.io/image/v5/types"

	"machine-pivot/internal/osimage/imageref"
)

// openSource opens the image that a reference names.
func openSource(ctx context.Context, ref imageref.Reference, sys *types.SystemContext) (types.ImageSource, error) {
	library, err := libraryRef(ref)
	if err != nil {
		return nil, err
	}
	switch ref.Transport() {
	case imageref.OCI:
		return openLayout(library, directory(ref.Name()), ref.Tag())
	case imageref.OCIArchive:
		files, err := indexArchive(ref.Name())
		if err != nil {
			return nil, err
		}
		return openLayout(library, files, ref.Tag())
	case imageref.DockerArchive:
		return openDockerArchive(library, ref.Name())
	}
	return library.NewImageSource(ctx, sys)
}

// libraryRef converts a reference to the library's type.
func libraryRef(ref imageref.Reference) (types.ImageReference, error) {
	switch ref.Transport() {
	case imageref.OCI:
		return ocilayout.NewReference(ref.Name(), ref.Tag())
	case imageref.OCIArchive:
		at, err := ocilayout.NewReference(ref.Name(), ref.Tag())
		return archived{at, ref.Transport()}, err
	case imageref.DockerArchive:
		at, err := ocilayout.NewReference(ref.Name(), "")
		return dockerArchived{archived{at, ref.Transport()}}, err
	case imageref.Dir:
		return librarydir.NewReference(ref.Name())
	}
	named, err := namedRef(ref)
	if err != nil {
		return nil, err
	}
	return docker.NewReference(named)
}

// archived is an image in an archive. Its scopes in the signature policy are those of a layout at the same path. The
// library's own references are not used, because its packages for archives also write them, with all compressors: a
// megabyte of the program.
type archived struct {
	types.ImageReference
	transport imageref.Transport
}

// Transport implements types.ImageReference.
func (a archived) Transport() types.ImageTransport { return named{ocilayout.Transport, a.transport} }

// named is a transport with another name.
type named struct {
	types.ImageTransport
	name imageref.Transport
}

// Name implements types.ImageTransport.
func (n named) Name() string { return string(n.name) }

// dockerArchived is an image in an archive of Docker's, for which the signature policy has no scopes.
type dockerArchived struct{ archived }

// StringWithinTransport implements types.ImageReference.
func (d dockerArchived) StringWithinTransport() string {
	return strings.TrimSuffix(d.archived.StringWithinTransport(), ":")
}

// PolicyConfigurationIdentity implements types.ImageReference.
func (d dockerArchived) PolicyConfigurationIdentity() string { return "" }

// PolicyConfigurationNamespaces implements types.ImageReference.
func (d dockerArchived) PolicyConfigurationNamespaces() []string { return nil }

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
