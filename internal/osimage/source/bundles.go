package source

import (
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	digestlib "github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/image"
	"go.podman.io/image/v5/signature"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/imagefault"
)

// The library does not know Sigstore bundles, which cosign writes since version 3. A requirement
// "sigstoreSigned" that it rejects is therefore checked here once more, with the bundles that the registry has
// for the image. All else in a policy remains the library's.

// keyed is a requirement "sigstoreSigned" of a policy, as far as it is about keys.
type keyed struct {
	KeyPath  string   `json:"keyPath"`
	KeyPaths []string `json:"keyPaths"`
	KeyData  []byte   `json:"keyData"`
	KeyDatas [][]byte `json:"keyDatas"`

	Fulcio     json.RawMessage `json:"fulcio"`
	PKI        json.RawMessage `json:"pki"`
	Identity   json.RawMessage `json:"signedIdentity"`
	RekorPath  string          `json:"rekorPublicKeyPath"`
	RekorPaths []string        `json:"rekorPublicKeyPaths"`
	RekorData  []byte          `json:"rekorPublicKeyData"`
	RekorDatas [][]byte        `json:"rekorPublicKeyDatas"`
}

// allowsWith returns an error unless each requirement of the rule accepts an image that the library has rejected. Those
// about Sigstore signatures need one of the registry's bundles for the image.
func (r ruling) allowsWith(ctx context.Context, at endpoint, instance *image.UnparsedImage, rejected error) error {
	if at.registry == nil || !slices.Contains(r.types, sigstoreSigned) {
		return rejected
	}
	manifest, _, err := instance.Manifest(ctx)
	if err != nil {
		return err
	}
	digest := digestlib.FromBytes(manifest)
	bundles, err := at.bundles(ctx, digest)
	if err != nil {
		return at.classifier.signatures(ctx, at.registry.withAsked(ctx, err))
	}
	if len(bundles.found)+len(bundles.unread) == 0 {
		return rejected
	}
	for n, requirement := range r.requirements {
		err := allowed(ctx, &signature.Policy{Default: signature.PolicyRequirements{requirement}}, false, image.UnparsedInstanceWithReference(instance, r.requested))
		if err != nil && r.types[n] == sigstoreSigned {
			err = r.acceptsOne(requirement, digest.String(), bundles)
		}
		if err != nil {
			refusal := fault.New(fault.Refused, "the signature policy rejects it by %s: %w", r.rule, err).WithHint(r.advice(r.signed), r.origin)
			if len(bundles.unread) > 0 {
				return refusal // another endpoint may have all of them
			}
			return imagefault.Final(refusal)
		}
	}
	return nil
}

// acceptsOne returns an error unless a requirement accepts one of the bundles for the manifest with a digest. The
// error names the reason for each, and those that could not be read.
func (r ruling) acceptsOne(requirement signature.PolicyRequirement, digest string, bundles bundles) error {
	text, err := json.Marshal(requirement)
	if err != nil {
		return err
	}
	var k keyed
	if err := json.Unmarshal(text, &k); err != nil {
		return err
	}
	keys, err := k.keys()
	if err != nil {
		return err
	}
	wanted, err := identityOf(k.Identity)
	if err != nil {
		return err
	}
	var rejections []string
	for n, data := range bundles.found {
		err := acceptsBundle(data, keys, digest, wanted, r.requested.DockerReference())
		if err == nil {
			return nil
		}
		rejections = append(rejections, fmt.Sprintf("bundle %d of %d: %v", n+1, len(bundles.found), err))
	}
	return errors.New(strings.Join(append(rejections, bundles.unread...), "; "))
}

// keys returns the trusted keys. What a bundle would have to have besides a key's signature is not verified
// here, so that a requirement of it is an error.
func (k keyed) keys() (keys []crypto.PublicKey, err error) {
	switch {
	case len(k.Fulcio) > 0 || len(k.PKI) > 0:
		return nil, errors.New("the rule is about certificates, by which Sigstore bundles are not verified, only by keys")
	case k.RekorPath != "" || len(k.RekorPaths)+len(k.RekorData)+len(k.RekorDatas) > 0:
		return nil, errors.New("the rule wants an entry in Rekor, which is not verified in Sigstore bundles")
	}
	texts := k.KeyDatas
	if k.KeyData != nil {
		texts = append(texts, k.KeyData)
	}
	paths := k.KeyPaths
	if k.KeyPath != "" {
		paths = append(paths, k.KeyPath)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	for n, text := range texts {
		key, err := parseKey(text)
		if err != nil {
			return nil, fmt.Errorf("cannot use key %d of the rule: %w", n+1, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// acceptsBundle returns an error unless a bundle is a signature by one of the keys of the image with a digest. Its name
// must be one that the policy accepts for the requested one. A bundle without a name is not accepted: whoever serves
// the image could have taken it from another repository with images that the same key signs.
func acceptsBundle(data []byte, keys []crypto.PublicKey, digest string, wanted identity, requested reference.Named) error {
	claim, err := verifyBundle(data, keys)
	if err != nil {
		return err
	}
	if claim.Digest != digest {
		return fmt.Errorf("it is the signature of another image, with the digest %s", claim.Digest)
	}
	if len(claim.Names) == 0 {
		return fmt.Errorf("it does not say which image it signs; sign with cosign sign -a %s=%s", nameAnnotation, requested.Name())
	}
	for _, name := range claim.Names {
		accepted, err := wanted.accepts(requested, name)
		if err != nil {
			return err
		}
		if !accepted {
			return fmt.Errorf("it is a signature for identity %q, which %s does not accept for %s", name, wanted.Type, requested)
		}
	}
	return nil
}
