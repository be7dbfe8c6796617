package osimage_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"machine-pivot/test/worlds/registry"
)

// claim is the statement of a signature: the digest belongs to the identity.
type claim struct{ identity, digest string }

// payload returns the claim in the format that simple signing and cosign share.
func (c claim) payload(t *testing.T, kind string) []byte {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"critical": map[string]any{
			"type":     kind,
			"image":    map[string]string{"docker-manifest-digest": c.digest},
			"identity": map[string]string{"docker-reference": c.identity},
		},
		"optional": map[string]any{},
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// signer makes signatures of one format and stores them where they are looked up.
type signer interface {
	// requirement returns the policy requirement for signatures by this signer's key.
	requirement(t *testing.T) string
	// sign returns a signature, as it is stored.
	sign(t *testing.T, c claim) []byte
	// store stores a signature of a claim for the image with a digest.
	store(t *testing.T, r *registry.Registry, digest string, c claim, signature []byte)
}

// gpgSigner makes signatures for simple signing, in a lookaside directory.
type gpgSigner struct {
	key       *openpgp.Entity
	lookaside string
}

func newGPGSigner(t *testing.T, lookaside string) signer {
	t.Helper()
	key, err := openpgp.NewEntity("test", "", "test@example.com", &packet.Config{Algorithm: packet.PubKeyAlgoEdDSA})
	if err != nil {
		t.Fatal(err)
	}
	return gpgSigner{key, lookaside}
}

func (s gpgSigner) requirement(t *testing.T) string {
	t.Helper()
	var public bytes.Buffer
	if err := s.key.Serialize(&public); err != nil {
		t.Fatal(err)
	}
	return `{"type":"signedBy","keyType":"GPGKeys","keyData":"` + base64.StdEncoding.EncodeToString(public.Bytes()) + `"}`
}

func (s gpgSigner) sign(t *testing.T, c claim) []byte {
	t.Helper()
	var signature bytes.Buffer
	w, err := openpgp.Sign(&signature, s.key, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(c.payload(t, "atomic container signature")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return signature.Bytes()
}

func (s gpgSigner) store(t *testing.T, _ *registry.Registry, digest string, _ claim, signature []byte) {
	t.Helper()
	dir := filepath.Join(s.lookaside, "test/os@"+strings.Replace(digest, ":", "=", 1))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "signature-1"), signature, 0o600); err != nil {
		t.Fatal(err)
	}
}

// cosignSigner makes sigstore signatures with a key, attached to the image in the registry.
type cosignSigner struct{ key *ecdsa.PrivateKey }

func newCosignSigner(t *testing.T, _ string) signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return cosignSigner{key}
}

func (s cosignSigner) requirement(t *testing.T) string {
	t.Helper()
	return `{"type":"sigstoreSigned","keyData":"` + s.publicData(t) + `"}`
}

// public returns the public key as cosign writes it.
func (s cosignSigner) public(t *testing.T) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(s.key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// publicData returns the public key as in a policy.
func (s cosignSigner) publicData(t *testing.T) string {
	t.Helper()
	return base64.StdEncoding.EncodeToString(s.public(t))
}

const cosignType = "cosign container image signature"

func (s cosignSigner) sign(t *testing.T, c claim) []byte {
	t.Helper()
	sum := sha256.Sum256(c.payload(t, cosignType))
	signature, err := s.key.Sign(rand.Reader, sum[:], crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	return signature
}

func (s cosignSigner) store(t *testing.T, r *registry.Registry, digest string, c claim, signature []byte) {
	t.Helper()
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.Append(base, mutate.Addendum{
		Layer:       static.NewLayer(c.payload(t, cosignType), "application/vnd.dev.cosign.simplesigning.v1+json"),
		Annotations: map[string]string{"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(signature)},
	})
	if err != nil {
		t.Fatal(err)
	}
	pushTo(t, r, strings.Replace(digest, ":", "-", 1)+".sig", img)
}

// policy writes a signature policy for one scope of registries; it rejects everything else.
func (h *host) policy(scope, requirements string) {
	h.write("/etc/containers/policy.json", `{"default":[{"type":"reject"}],"transports":{"docker":{"`+scope+`":[`+requirements+`]}}}`)
}

// lookFor configures the host with the location of a registry's signatures.
func (h *host) lookFor(name, lookaside string) {
	h.write("/etc/containers/registries.d/"+strings.ReplaceAll(name, "/", "-")+".yaml",
		"docker:\n  "+name+":\n    lookaside: "+lookaside+"\n    use-sigstore-attachments: true\n")
}
