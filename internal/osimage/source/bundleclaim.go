package source

import (
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// maxBundle is the maximum size of a bundle, in bytes. One with a public key has 1 KiB, one with certificate,
// log entry and time stamp 10 KiB.
const maxBundle = 256 << 10

// bundleMediaTypes are the types of the bundles that verifyBundle reads. They differ in parts that it does not read.
func bundleMediaTypes() []string {
	return []string{
		"application/vnd.dev.sigstore.bundle.v0.3+json", "application/vnd.dev.sigstore.bundle+json;version=0.3",
		"application/vnd.dev.sigstore.bundle+json;version=0.2", "application/vnd.dev.sigstore.bundle+json;version=0.1",
	}
}

// bundleClaim is what the owner of a key has signed about an image.
type bundleClaim struct {
	Digest string // of the manifest, sha256:…
	// Names are what the signature says the image is called, as repository or reference: the name of the
	// statement's subject, and its annotation nameAnnotation. cosign writes no name by itself.
	Names []string
}

// nameAnnotation is the annotation with the image's name. It has the name of the same statement in the older
// format (containers-signature(5)): cosign sign -a docker-reference=NAME
const nameAnnotation = "docker-reference"

// The types of what is signed.
const (
	bundlePayloadType   = "application/vnd.in-toto+json"
	bundleStatementType = "https://in-toto.io/Statement/v1"
	// bundlePredicate says that the statement is the signature of an image, and not an attestation, such as a list
	// of its vulnerabilities, which the same key may have signed.
	bundlePredicate = "https://sigstore.dev/cosign/sign/v1"
)

// bundleFile is the part of a bundle that is read.
type bundleFile struct {
	MediaType string          `json:"mediaType"`
	Envelope  *bundleEnvelope `json:"dsseEnvelope"`
}

// bundleEnvelope is a DSSE envelope.
type bundleEnvelope struct {
	Payload     []byte `json:"payload"`
	PayloadType string `json:"payloadType"`
	Signatures  []struct {
		Sig []byte `json:"sig"`
	} `json:"signatures"`
}

// bundleStatement is an in-toto statement.
type bundleStatement struct {
	Type          string          `json:"_type"`
	Subject       []bundleSubject `json:"subject"`
	PredicateType string          `json:"predicateType"`
}

type bundleSubject struct {
	Name        string                     `json:"name"`
	Digest      map[string]string          `json:"digest"`
	Annotations map[string]json.RawMessage `json:"annotations"`
}

// verifyBundle returns what a bundle says about an image, if one of the keys has signed it. A bundle is a DSSE envelope
// around an in-toto statement that names the image's digest; cosign writes them since version 3. Nothing of one is
// interpreted before its signature was verified, except for where the signature is. Certificates, entries of a
// transparency log and time stamps are not read: they add nothing to a key that the caller trusts.
//
// Sources: specs/BUNDLE_SPEC.md of cosign, sigstore_bundle.proto, protocol.md and envelope.md of DSSE,
// the in-toto statement v1.
func verifyBundle(data []byte, keys []crypto.PublicKey) (bundleClaim, error) {
	if len(data) > maxBundle {
		return bundleClaim{}, fmt.Errorf("it has %d bytes, more than %d", len(data), maxBundle)
	}
	var f bundleFile
	if err := decodeBundle(data, &f); err != nil {
		return bundleClaim{}, fmt.Errorf("it is no bundle: %w", err)
	}
	switch {
	case !slices.Contains(bundleMediaTypes(), f.MediaType):
		return bundleClaim{}, fmt.Errorf("it is of the type %q, which is not known", f.MediaType)
	case f.Envelope == nil:
		return bundleClaim{}, errors.New("it has no DSSE envelope, as the signature of an image has")
	case f.Envelope.PayloadType != bundlePayloadType:
		return bundleClaim{}, fmt.Errorf("it is about %q, not an in-toto statement", f.Envelope.PayloadType)
	case len(f.Envelope.Signatures) != 1: // the bundle's format allows no other number
		return bundleClaim{}, fmt.Errorf("it has %d signatures, want one", len(f.Envelope.Signatures))
	}
	if err := verified(f.Envelope.authenticated(), f.Envelope.Signatures[0].Sig, keys); err != nil {
		return bundleClaim{}, err
	}
	return claimOf(f.Envelope.Payload)
}

// authenticated returns what is signed: the payload together with its type (DSSE's PAE).
func (e bundleEnvelope) authenticated() []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(e.PayloadType), e.PayloadType, len(e.Payload), e.Payload)
}

// claimOf reads a statement with a verified signature.
func claimOf(payload []byte) (bundleClaim, error) {
	var s bundleStatement
	if err := decodeBundle(payload, &s); err != nil {
		return bundleClaim{}, fmt.Errorf("its statement cannot be read: %w", err)
	}
	switch {
	case s.Type != bundleStatementType:
		return bundleClaim{}, fmt.Errorf("its statement is of the type %q, want %s", s.Type, bundleStatementType)
	case s.PredicateType != bundlePredicate:
		return bundleClaim{}, fmt.Errorf("it is no signature but an attestation, of the type %q", s.PredicateType)
	case len(s.Subject) != 1:
		return bundleClaim{}, fmt.Errorf("its statement is about %d subjects, want one", len(s.Subject))
	}
	return s.Subject[0].claim()
}

func (s bundleSubject) claim() (bundleClaim, error) {
	hex := s.Digest["sha256"]
	if len(hex) != 64 || strings.Trim(hex, "0123456789abcdef") != "" {
		return bundleClaim{}, errors.New("its statement has no SHA-256 of the image")
	}
	c := bundleClaim{Digest: "sha256:" + hex}
	if s.Name != "" {
		c.Names = append(c.Names, s.Name)
	}
	if raw, has := s.Annotations[nameAnnotation]; has {
		var name string
		if err := json.Unmarshal(raw, &name); err != nil || name == "" {
			return bundleClaim{}, fmt.Errorf("its annotation %s is not the name of an image", nameAnnotation)
		}
		c.Names = append(c.Names, name)
	}
	return c, nil
}
