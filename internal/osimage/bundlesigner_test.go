package osimage_test

import (
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"machine-pivot/test/worlds/registry"
)

// bundleSigner makes Sigstore bundles with a key, as cosign 3 does, and stores them as manifests that refer to the
// image.
type bundleSigner struct{ cosignSigner }

func newBundleSigner(t *testing.T, lookaside string) signer {
	return bundleSigner{newCosignSigner(t, lookaside).(cosignSigner)}
}

const bundleType = "application/vnd.dev.sigstore.bundle.v0.3+json"

// statement returns the claim as an in-toto statement.
func (c claim) statement(t *testing.T) []byte {
	t.Helper()
	annotations := map[string]string{"docker-reference": c.identity}
	if c.identity == "" {
		delete(annotations, "docker-reference")
	}
	text, err := json.Marshal(map[string]any{
		"_type": "https://in-toto.io/Statement/v1", "predicateType": "https://sigstore.dev/cosign/sign/v1", "predicate": map[string]any{},
		"subject": []map[string]any{{
			"digest":      map[string]string{"sha256": strings.TrimPrefix(c.digest, "sha256:")},
			"annotations": annotations,
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (s bundleSigner) sign(t *testing.T, c claim) []byte {
	t.Helper()
	const kind = "application/vnd.in-toto+json"
	payload := c.statement(t)
	sum := sha256.Sum256(fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(kind), kind, len(payload), payload))
	signature, err := s.key.Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	return signature
}

func (s bundleSigner) store(t *testing.T, r *registry.Registry, digest string, c claim, signature []byte) {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"mediaType":            bundleType,
		"verificationMaterial": map[string]any{"publicKey": map[string]string{"hint": "x"}},
		"dsseEnvelope": map[string]any{
			"payload": c.statement(t), "payloadType": "application/vnd.in-toto+json", "signatures": []map[string]any{{"sig": signature}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	refers := referring(t, digest, "application/vnd.oci.empty.v1+json", bundleType, text)
	pushTo(t, r, "bundle-of-"+strings.TrimPrefix(digest, "sha256:")[:12], refers)
	if r.Lists() {
		return
	}
	index := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{Add: refers})
	if _, err := r.PushIndex(t.Context(), "test/os", strings.Replace(digest, ":", "-", 1), index); err != nil {
		t.Fatal(err)
	}
}

// referring returns a manifest that refers to the image with a digest, with an artifact's type and one layer.
func referring(t *testing.T, digest, artifact, layer string, text []byte) v1.Image {
	t.Helper()
	img, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.MediaType(artifact)),
		static.NewLayer(text, types.MediaType(layer)))
	if err != nil {
		t.Fatal(err)
	}
	hash, err := v1.NewHash(digest)
	if err != nil {
		t.Fatal(err)
	}
	return mutate.Subject(img, v1.Descriptor{MediaType: types.DockerManifestSchema2, Digest: hash, Size: 1}).(v1.Image)
}
