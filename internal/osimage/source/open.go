package source

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"

	digestlib "github.com/opencontainers/go-digest"
	imgspec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/image"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/types"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/imagefault"
	"machine-pivot/internal/osimage/imageref"
)

// Open reads an image's manifest and config from the first endpoint that has it. If the
// reference names a manifest list, Open chooses this platform's manifest. The image must be
// closed. Errors have a kind (package fault).
//
// asked is the name by which the image was asked for. The signature policy is about that name: the rule for a tag
// holds also when the image is opened as ref, by the digest that the tag was resolved to.
func (h *Host) Open(ctx context.Context, ref, asked imageref.Reference) (*Image, error) {
	endpoints, err := h.endpoints(ref)
	if err != nil {
		return nil, err
	}
	for n := range endpoints {
		endpoints[n].asked = asked
	}
	var failed []failure
	for _, at := range endpoints {
		o, err := h.openAt(ctx, at, ref)
		if err == nil {
			o.Notes = append(failureNotes(endpoints, failed), o.Notes...)
			o.failover = newFailover(ref, endpoints, o, failed)
			return o, nil
		}
		failed = append(failed, failure{at, err})
		if imagefault.IsFinal(err) || ctx.Err() != nil {
			break
		}
	}
	return nil, allFailed(ref, len(endpoints), failed)
}

// openAt is Open for one endpoint.
func (h *Host) openAt(ctx context.Context, at endpoint, ref imageref.Reference) (*Image, error) {
	if at.err != nil {
		return nil, at.err
	}
	ruling, err := h.rulingOn(ctx, at)
	if err != nil {
		return nil, at.classifier.classify(ctx, err, fault.BadInput)
	}
	ctx, cancel := h.withDeadline(ctx, at)
	defer cancel()
	dial := func(ctx context.Context, generation int) (types.ImageSource, error) {
		return openSource(at.registry.observe(ctx, generation, maxOpened), at.ref, at.sys)
	}
	source, err := dial(ctx, 0)
	if err != nil {
		return nil, at.classifier.classify(ctx, at.registry.withAsked(ctx, err), at.classifier.fallback())
	}
	o := &Image{host: h, connection: &connection{dial: dial, registry: at.registry, now: source}, classifier: at.classifier}
	if err := h.read(counting(ctx, maxOpened), at, ref, ruling, o); err != nil {
		return nil, errors.Join(at.classifier.classify(ctx, at.registry.withAsked(ctx, err), fault.BadInput), source.Close())
	}
	return o, nil
}

// read fills in the fields of o from its source.
func (h *Host) read(ctx context.Context, at endpoint, ref imageref.Reference, ruling ruling, o *Image) error {
	chosen, err := o.chooseManifest(ctx, at.sys, ref)
	if err != nil {
		return err
	}
	if at.ref != ref {
		o.From = at.ref.Pinned(o.Digest)
	}
	if err := ruling.accept(ctx, at, chosen, o); err != nil {
		return err
	}
	parsed, err := image.FromUnparsedImage(ctx, at.sys, chosen)
	if err != nil {
		return fmt.Errorf("cannot parse the manifest: %w", err)
	}
	o.parsed = parsed
	o.parts.small = parsed.ConfigInfo()
	if err := checkManifest(parsed.ConfigInfo(), parsed.LayerInfos()); err != nil {
		return err
	}
	if o.Annotations, err = readAnnotations(ctx, parsed); err != nil {
		return err
	}
	config, err := readConfig(ctx, parsed)
	if err != nil {
		return at.classifier.ofPart().classify(ctx, err, fault.BadInput)
	}
	return o.fill(config, parsed.LayerInfos())
}

// readAnnotations reads the annotations of a manifest. Only OCI manifests have them.
func readAnnotations(ctx context.Context, parsed types.Image) (map[string]string, error) {
	raw, _, err := parsed.Manifest(ctx)
	if err != nil {
		return nil, err
	}
	var m imgspec.Manifest
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("cannot parse the manifest: %w", err)
	}
	return m.Annotations, nil
}

// readConfig reads an image's config. The library has verified its digest.
func readConfig(ctx context.Context, parsed types.Image) (*imgspec.Image, error) {
	raw, err := parsed.ConfigBlob(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot read the config: %w", err)
	}
	if err := checkAmount("config", raw); err != nil {
		return nil, err
	}
	config, err := parsed.OCIConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot parse the config: %w", err)
	}
	return config, nil
}

// chooseManifest reads the manifest that the reference names and, if that is a list, this
// platform's manifest.
func (i *Image) chooseManifest(ctx context.Context, sys *types.SystemContext, ref imageref.Reference) (*image.UnparsedImage, error) {
	top := image.UnparsedInstance(i.connection.source(), nil)
	raw, mime, err := top.Manifest(ctx)
	if err != nil {
		return nil, err
	}
	digest, err := manifest.Digest(raw)
	if err != nil {
		return nil, fmt.Errorf("cannot digest the manifest: %w", err)
	}
	if want := ref.Digest(); want != "" && want != digest.String() {
		return nil, fmt.Errorf("its manifest has the digest %s", digest)
	}
	i.Reference, i.Digest = ref.Pinned(digest.String()), digest.String()
	if err := checkAmount("manifest", raw); err != nil {
		return nil, err
	}
	if !manifest.MIMETypeIsMultiImage(mime) {
		return top, readable(raw, mime)
	}
	instance, err := chooseInstance(sys, raw, mime)
	if err != nil {
		return nil, err
	}
	i.Instance = instance.String()
	chosen := image.UnparsedInstance(i.connection.source(), &instance)
	if raw, mime, err = chosen.Manifest(ctx); err != nil {
		return nil, i.classifier.ofPart().classify(ctx, fmt.Errorf("cannot read this platform's manifest: %w", err), fault.BadInput)
	}
	if err := checkAmount("manifest", raw); err != nil {
		return nil, err
	}
	return chosen, readable(raw, mime)
}

// readable rejects a manifest that is not that of an image, and one of Docker's schema 1,
// which has no config.
func readable(raw []byte, mime string) error {
	if mime == manifest.DockerV2Schema2MediaType || mime == imgspec.MediaTypeImageManifest {
		return nil
	}
	switch manifest.GuessMIMEType(raw) {
	case manifest.DockerV2Schema1MediaType, manifest.DockerV2Schema1SignedMediaType:
		return fault.New(fault.Refused, "its manifest is of Docker's schema 1, which is not supported").
			WithHint("push the image again with a current tool, for example skopeo copy --format=v2s2")
	}
	return fault.New(fault.Refused, "its manifest is of the type %q, which is not that of a container image", mime).
		WithHint("compare its name and tag with those of an image for hosts: skopeo inspect --raw docker://IMAGE")
}

// fill sets the fields of the image that come from the config and the list of layers.
func (i *Image) fill(config *imgspec.Image, layers []types.BlobInfo) error {
	if err := checkConfig(config, len(layers)); err != nil {
		return err
	}
	i.blobs, i.Layers = layers, make([]Layer, len(layers))
	for n, layer := range layers {
		i.Layers[n] = Layer{Digest: layer.Digest.String(), Size: layer.Size, DiffID: config.RootFS.DiffIDs[n].String(), Annotations: layer.Annotations}
	}
	i.OS, i.Architecture, i.Variant, i.Labels = config.OS, config.Architecture, config.Variant, config.Config.Labels
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
		return "", fault.New(fault.Refused, "%w", err).WithHint("the image is not built for this machine's architecture (%s)", cmp.Or(sys.ArchitectureChoice, runtime.GOARCH))
	}
	if err := checkDigest("this platform's manifest", instance); err != nil {
		return "", imagefault.Misbuilt("its manifest list: %w", err)
	}
	return instance, nil
}
