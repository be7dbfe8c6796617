package osimage

import (
	"context"
	"errors"
	"fmt"

	digestlib "github.com/opencontainers/go-digest"
	imgspec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/directory"
	"go.podman.io/image/v5/docker"
	dockerarchive "go.podman.io/image/v5/docker/archive"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/image"
	"go.podman.io/image/v5/manifest"
	ociarchive "go.podman.io/image/v5/oci/archive"
	"go.podman.io/image/v5/oci/layout"
	"go.podman.io/image/v5/types"

	"machine-pivot/fault"
)

// opened is an image whose manifest and config are read and accepted by the policy.
type opened struct {
	Image
	source types.ImageSource
	parsed types.Image
	blobs  []types.BlobInfo // the layers, in order
	diffs  []digestlib.Digest
	judge  judge
}

// Close ends the connection to the image's source.
func (o *opened) Close() error { return o.source.Close() }

// open reads an image as far as its config. Errors are classified.
func (p *Puller) open(ctx context.Context, ref Reference) (*opened, error) {
	sys, secret, err := p.system(ref)
	if err != nil {
		return nil, err
	}
	judge := judge{ref: ref, secret: secret, root: p.path("/")}
	if ref.remote() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, p.patience(), errSilent)
		defer cancel()
	}
	source, err := newSource(ctx, sys, ref)
	if err != nil {
		return nil, judge.classify(ctx, err, judge.fallback())
	}
	o := &opened{source: source, judge: judge}
	if err := p.read(ctx, sys, ref, o); err != nil {
		return nil, errors.Join(judge.classify(ctx, err, fault.BadInput), source.Close())
	}
	return o, nil
}

// read fills in o from its source.
func (p *Puller) read(ctx context.Context, sys *types.SystemContext, ref Reference, o *opened) error {
	top := image.UnparsedInstance(o.source, nil)
	raw, mime, err := top.Manifest(ctx)
	if err != nil {
		return err
	}
	digest, err := manifest.Digest(raw)
	if err != nil {
		return fmt.Errorf("cannot digest the manifest: %w", err)
	}
	if want := ref.Digest(); want != "" && want != digest.String() {
		return fmt.Errorf("its manifest has the digest %s", digest)
	}
	o.asked, o.Reference, o.Digest = ref, ref.Pinned(digest.String()), digest.String()

	chosen := top
	if manifest.MIMETypeIsMultiImage(mime) {
		instance, err := chooseInstance(sys, raw, mime)
		if err != nil {
			return err
		}
		o.Instance = instance.String()
		chosen = image.UnparsedInstance(o.source, &instance)
	}
	if err := p.checkPolicy(ctx, sys, ref, chosen); err != nil {
		return err
	}
	parsed, err := image.FromUnparsedImage(ctx, sys, chosen)
	if err != nil {
		return fmt.Errorf("cannot parse the manifest: %w", err)
	}
	o.parsed = parsed
	config, err := parsed.OCIConfig(ctx)
	if err != nil {
		return fmt.Errorf("cannot read the config: %w", err)
	}
	return o.fill(config, parsed.LayerInfos())
}

func (o *opened) fill(config *imgspec.Image, layers []types.BlobInfo) error {
	o.blobs, o.diffs = layers, config.RootFS.DiffIDs
	if len(o.blobs) != len(o.diffs) {
		return fmt.Errorf("its manifest has %d layers and its config %d", len(o.blobs), len(o.diffs))
	}
	o.Layers = make([]Layer, len(layers))
	for i, layer := range layers {
		o.Layers[i] = Layer{Digest: layer.Digest.String(), Size: layer.Size}
		o.Bytes += max(layer.Size, 0)
	}
	o.describe(config)
	return nil
}

// chooseInstance picks this platform's manifest from a list.
func chooseInstance(sys *types.SystemContext, raw []byte, mime string) (digestlib.Digest, error) {
	list, err := manifest.ListFromBlob(raw, mime)
	if err != nil {
		return "", fmt.Errorf("cannot parse the manifest list: %w", err)
	}
	instance, err := list.ChooseInstance(sys)
	if err != nil {
		return "", fault.New(fault.Refused, "%w", err).WithHint("the image is not built for this machine's architecture")
	}
	return instance, nil
}

// newSource opens the source with the library's transport.
func newSource(ctx context.Context, sys *types.SystemContext, ref Reference) (types.ImageSource, error) {
	library, err := ref.library()
	if err != nil {
		return nil, err
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
