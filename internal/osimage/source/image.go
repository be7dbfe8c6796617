package source

import (
	"context"
	"fmt"

	imgspec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/types"

	"machine-pivot/internal/osimage/imageref"
)

// Image is an open image: its manifest and config are read, and the host's
// signature policy accepts it. It is safe for use by several goroutines.
type Image struct {
	Reference    imageref.Reference // pinned to Digest
	From         imageref.Reference // the mirror, or path below Host.Root, that it is read from; zero if Reference itself
	Policy       string             // the rule of the signature policy that accepted it
	Digest       string             // of the manifest, or manifest list, that the reference names
	Instance     string             // of this platform's manifest, if Digest is a manifest list
	OS           string             // from the config, like the next two; "" if not stated
	Architecture string
	Variant      string // of the architecture
	Labels       map[string]string
	Annotations  map[string]string // of the manifest, if it is in OCI format
	Layers       []Layer
	Notes        []string // for people: failed endpoints, a missing policy

	failover   *failover
	host       *Host
	connection *connection
	classifier classifier
	parsed     types.Image
	blobs      []types.BlobInfo // the library's description of the layers
	parts      partSupport
}

// Layer describes a layer as in manifest and config.
type Layer struct {
	Digest      string            // of the compressed stream
	Size        int64             // of the compressed stream, in bytes
	DiffID      string            // the digest of the decompressed stream
	Annotations map[string]string // of the layer in the manifest, if that is in OCI format
}

// Meter counts the bytes of layers as they arrive. It is used by several goroutines at once.
type Meter interface {
	Fetched(n int) // counts bytes of a layer's stream
	Again(n int)   // counts bytes that are fetched again
}

// Close ends the connections to the endpoints that the image was read from.
func (i *Image) Close() error { return i.failover.close() }

// OCI returns the image's manifest (this platform's) and config in OCI format. Docker's format
// is converted.
func (i *Image) OCI(ctx context.Context) (manifest, config []byte, err error) {
	converted := i.parsed
	manifest, mime, err := converted.Manifest(ctx)
	if err != nil {
		return nil, nil, err
	}
	if mime != imgspec.MediaTypeImageManifest {
		converted, err = converted.UpdatedImage(ctx, types.ManifestUpdateOptions{ManifestMIMEType: imgspec.MediaTypeImageManifest})
		if err != nil {
			return nil, nil, fmt.Errorf("cannot convert the manifest: %w", err)
		}
		if manifest, _, err = converted.Manifest(ctx); err != nil {
			return nil, nil, err
		}
	}
	config, err = converted.ConfigBlob(ctx)
	return manifest, config, err
}
