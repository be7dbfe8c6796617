package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	digestlib "github.com/opencontainers/go-digest"
	imgspec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/types"

	"machine-pivot/internal/osimage/imagefault"
)

// Limits of manifest and config. The library reads up to 4 MiB of each, and a list of empty
// objects takes a hundred times that in memory.
const (
	maxTokens = 1 << 17 // JSON tokens; an image of 500 layers has a tenth of that
	maxLayers = 512     // more than a kernel can mount
	// maxLayerSize bounds the size that a manifest states for a layer, in bytes. No layer is as
	// large, and sums over layers and images do not overflow.
	maxLayerSize = 1 << 40
)

// checkAmount rejects a manifest or config with more than maxTokens JSON tokens. It ignores
// text that is not JSON; the parser rejects that.
func checkAmount(what string, raw []byte) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	for range maxTokens {
		if _, err := d.Token(); err != nil { // io.EOF at its end
			return nil
		}
	}
	return imagefault.TooLarge("its %s has more than %d parts", what, maxTokens)
}

// checkDigest rejects a malformed digest: the library's methods for digests panic on some.
func checkDigest(what string, digest digestlib.Digest) error {
	if err := digest.Validate(); err != nil {
		return fmt.Errorf("the digest %q of %s: %w", digest, what, err)
	}
	return nil
}

// checkLayerDigest is checkDigest for a digest that this package compares itself. It must be
// a SHA-256 digest.
func checkLayerDigest(what string, digest digestlib.Digest) error {
	if err := checkDigest(what, digest); err != nil {
		return err
	}
	if algorithm := digest.Algorithm(); algorithm != digestlib.SHA256 {
		return fmt.Errorf("the digest %q of %s: its kind %q is not known", digest, what, algorithm)
	}
	return nil
}

// checkManifest checks the number of layers in a manifest, their sizes, and all its digests.
func checkManifest(config types.BlobInfo, layers []types.BlobInfo) error {
	if len(layers) > maxLayers {
		return imagefault.TooLarge("it has %d layers, more than %d", len(layers), maxLayers)
	}
	wrong := []error{checkDigest("its config", config.Digest)}
	for n, layer := range layers {
		wrong = append(wrong, checkLayerDigest(fmt.Sprintf("layer %d", n+1), layer.Digest))
		if layer.Size < 0 {
			return imagefault.Misbuilt("its manifest: layer %d has %d bytes", n+1, layer.Size)
		}
		if layer.Size > maxLayerSize {
			return imagefault.TooLarge("its manifest: layer %d has %d bytes, more than any layer", n+1, layer.Size)
		}
	}
	return damagedBy("its manifest", wrong)
}

// checkConfig checks that a config describes the given number of layers, and all its digests.
func checkConfig(config *imgspec.Image, layers int) error {
	diffs := config.RootFS.DiffIDs
	if len(diffs) != layers {
		return imagefault.Misbuilt("its manifest has %d layers and its config %d", layers, len(diffs))
	}
	var wrong []error
	for n, diff := range diffs {
		wrong = append(wrong, checkLayerDigest(fmt.Sprintf("the content of layer %d", n+1), diff))
	}
	return damagedBy("its config", wrong)
}

// damagedBy joins all errors of a part of an image into one, or returns nil if there are none.
func damagedBy(part string, wrong []error) error {
	if err := errors.Join(wrong...); err != nil {
		return imagefault.Misbuilt("%s: %w", part, err)
	}
	return nil
}
