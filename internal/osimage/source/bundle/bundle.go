// Package bundle verifies signatures of images in the format of Sigstore bundles, which cosign writes since version 3:
// a DSSE envelope around an in-toto statement that names the image's digest. It verifies them with public keys, without
// a network, and reads nothing else in a bundle. Certificates, entries of a transparency log and time stamps add
// nothing to a key that the caller trusts.
//
// Sources: specs/BUNDLE_SPEC.md of cosign, sigstore_bundle.proto, protocol.md and envelope.md of DSSE,
// the in-toto statement v1.
//
// Limits: MaxSize bytes. The caller limits how many bundles it reads.
package bundle

import (
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// MaxSize is the maximum size of a bundle, in bytes. One with a public key has 1 KiB, one with certificate,
// log entry and time stamp 10 KiB.
const MaxSize = 256 << 10

// MediaTypes are the types of the bundles that Verify reads. They differ in parts that it does not read.
func MediaTypes() []string {
	return []string{
		"application/vnd.dev.sigstore.bundle.v0.3+json", "application/vnd.dev.sigstore.bundle+json;version=0.3",
		"application/vnd.dev.sigstore.bundle+json;version=0.2", "application/vnd.dev.sigstore.bundle+json;version=0.1",
	}
}

// Claim is what the owner of a key has signed about an image.
type Claim struct {
	Digest string // of the manifest, sha256:…
	// Names are what the signature says the image is called, as repository or reference: the name of the
	// statement's subject, and its annotation NameAnnotation. cosign writes no name by itself.
	Names []string
}

// NameAnnotation is the annotation with the image's name. It has the name of the same statement in the older
// format (containers-signature(5)): cosign sign -a docker-reference=NAME
const NameAnnotation = "docker-reference"

// The types of what is signed.
const (
	payloadType   = "application/vnd.in-toto+json"
	statementType = "https://in-toto.io/Statement/v1"
	// signature says that the statement is the signature of an image, and not an attestation, such as a list
	// of its vulnerabilities, which the same key may have signed.
	signature = "https://sigstore.dev/cosign/sign/v1"
)

// file is the part of a bundle that is read.
type file struct {
	MediaType string    `json:"mediaType"`
	Envelope  *envelope `json:"dsseEnvelope"`
}

// envelope is a DSSE envelope.
type envelope struct {
	Payload     []byte `json:"payload"`
	PayloadType string `json:"payloadType"`
	Signatures  []struct {
		Sig []byte `json:"sig"`
	} `json:"signatures"`
}

// statement is an in-toto statement.
type statement struct {
	Type          string    `json:"_type"`
	Subject       []subject `json:"subject"`
	PredicateType string    `json:"predicateType"`
}

type subject struct {
	Name        string                     `json:"name"`
	Digest      map[string]string          `json:"digest"`
	Annotations map[string]json.RawMessage `json:"annotations"`
}

// Verify returns what a bundle says about an image, if one of the keys has signed it. Nothing of a bundle is
// interpreted before its signature was verified, except for where the signature is.
func Verify(data []byte, keys []crypto.PublicKey) (Claim, error) {
	if len(data) > MaxSize {
		return Claim{}, fmt.Errorf("it has %d bytes, more than %d", len(data), MaxSize)
	}
	var f file
	if err := decode(data, &f); err != nil {
		return Claim{}, fmt.Errorf("it is no bundle: %w", err)
	}
	switch {
	case !slices.Contains(MediaTypes(), f.MediaType):
		return Claim{}, fmt.Errorf("it is of the type %q, which is not known", f.MediaType)
	case f.Envelope == nil:
		return Claim{}, errors.New("it has no DSSE envelope, as the signature of an image has")
	case f.Envelope.PayloadType != payloadType:
		return Claim{}, fmt.Errorf("it is about %q, not an in-toto statement", f.Envelope.PayloadType)
	case len(f.Envelope.Signatures) != 1: // the bundle's format allows no other number
		return Claim{}, fmt.Errorf("it has %d signatures, want one", len(f.Envelope.Signatures))
	}
	if err := verified(f.Envelope.authenticated(), f.Envelope.Signatures[0].Sig, keys); err != nil {
		return Claim{}, err
	}
	return claimOf(f.Envelope.Payload)
}

// authenticated returns what is signed: the payload together with its type (DSSE's PAE).
func (e envelope) authenticated() []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(e.PayloadType), e.PayloadType, len(e.Payload), e.Payload)
}

// claimOf reads a statement with a verified signature.
func claimOf(payload []byte) (Claim, error) {
	var s statement
	if err := decode(payload, &s); err != nil {
		return Claim{}, fmt.Errorf("its statement cannot be read: %w", err)
	}
	switch {
	case s.Type != statementType:
		return Claim{}, fmt.Errorf("its statement is of the type %q, want %s", s.Type, statementType)
	case s.PredicateType != signature:
		return Claim{}, fmt.Errorf("it is no signature but an attestation, of the type %q", s.PredicateType)
	case len(s.Subject) != 1:
		return Claim{}, fmt.Errorf("its statement is about %d subjects, want one", len(s.Subject))
	}
	return s.Subject[0].claim()
}

func (s subject) claim() (Claim, error) {
	hex := s.Digest["sha256"]
	if len(hex) != 64 || strings.Trim(hex, "0123456789abcdef") != "" {
		return Claim{}, errors.New("its statement has no SHA-256 of the image")
	}
	c := Claim{Digest: "sha256:" + hex}
	if s.Name != "" {
		c.Names = append(c.Names, s.Name)
	}
	if raw, has := s.Annotations[NameAnnotation]; has {
		var name string
		if err := json.Unmarshal(raw, &name); err != nil || name == "" {
			return Claim{}, fmt.Errorf("its annotation %s is not the name of an image", NameAnnotation)
		}
		c.Names = append(c.Names, name)
	}
	return c, nil
}
