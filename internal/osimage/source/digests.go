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

// Bounds of manifest and config. The library reads up to 4 MiB of each, and a list of empty
// objects takes a hundred times that in memory.
const (
	maxTokens = 1 << 17 // of JSON; an image of 500 layers has a tenth of that
	maxLayers = 512     // more than a kernel can mount
)

// checkAmount refuses a manifest or config with more than maxTokens parts. Text that is
// not JSON is left to the parser.
func checkAmount(what string, raw []byte) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	for range maxTokens {
		if _, err := d.Token(); err != nil { // io.EOF at its end
			return nil
		}
	}
	return imagefault.Damaged("its %s has more than %d parts", what, maxTokens)
}

// checkDigest refuses a malformed digest: the library's methods for digests panic on some.
func checkDigest(what string, digest digestlib.Digest) error {
	if err := digest.Validate(); err != nil {
		return fmt.Errorf("the digest %q of %s: %w", digest, what, err)
	}
	return nil
}

// checkLayerDigest is checkDigest for a digest that this package compares itself, which
// it does by SHA-256 only.
func checkLayerDigest(what string, digest digestlib.Digest) error {
	if err := checkDigest(what, digest); err != nil {
		return err
	}
	if algorithm := digest.Algorithm(); algorithm != digestlib.SHA256 {
		return fmt.Errorf("the digest %q of %s: its kind %q is not known", digest, what, algorithm)
	}
	return nil
}

// checkManifest checks how many layers a manifest has, and all digests in it.
func checkManifest(config types.BlobInfo, layers []types.BlobInfo) error {
	if len(layers) > maxLayers {
		return imagefault.Damaged("it has %d layers, more than %d", len(layers), maxLayers)
	}
	wrong := []error{checkDigest("its config", config.Digest)}
	for n, layer := range layers {
		wrong = append(wrong, checkLayerDigest(fmt.Sprintf("layer %d", n+1), layer.Digest))
	}
	return damagedBy("its manifest", wrong)
}

// checkConfig checks that a config is about so many layers, and all digests in it.
func checkConfig(config *imgspec.Image, layers int) error {
	diffs := config.RootFS.DiffIDs
	if len(diffs) != layers {
		return imagefault.Damaged("its manifest has %d layers and its config %d", layers, len(diffs))
	}
	var wrong []error
	for n, diff := range diffs {
		wrong = append(wrong, checkLayerDigest(fmt.Sprintf("the content of layer %d", n+1), diff))
	}
	return damagedBy("its config", wrong)
}

// damagedBy is one error for all problems of a part of an image.
func damagedBy(part string, wrong []error) error {
	if err := errors.Join(wrong...); err != nil {
		return imagefault.Damaged("%s: %w", part, err)
	}
	return nil
}
