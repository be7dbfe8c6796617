// Package osimage reads OS images: it resolves a reference to content, checks
// it against the host's signature policy and imports the ostree commit that it
// carries into a repository, every byte verified, without unpacking a container.
//
// Formats. A legacy "oscontainer" (machine-os-content) is an ordinary container
// image with an archive-mode repository at /srv/repo; its commit is named by the
// label com.coreos.ostree-commit or by the only ref. ostree-native containers
// carry it in layers of objects ("encapsulated"); those with further layers on
// top ("layered") are recognized and refused.
//
// Sources. Registries, by the containers image library, and local media (oci,
// oci-archive, dir, docker-archive), which never ask the network. Where the
// library looks for its configuration (registries.conf with mirrors, certs.d,
// registries.d) is its own documented default, below Puller.Root; pull secrets
// and the policy are looked up as Puller says.
//
// Faults. A layer's download that fails by a transient fault is tried again with
// backoff, from the byte where it stopped (Retry). Manifest and config are not: an
// error says by its kind whether trying the whole again can help. The library
// itself waits up to five times on a registry's "429 Too Many Requests", as long as
// that says, and resumes a broken download once.
package osimage

import (
	"encoding"
	"strings"
)

// The transports, as in containers-transports(5).
const (
	transportRegistry      = "docker"
	transportOCI           = "oci"
	transportOCIArchive    = "oci-archive"
	transportDir           = "dir"
	transportDockerArchive = "docker-archive"
)

// Reference names an OS image. The zero value names nothing; others come from
// ParseReference. References are comparable, but ask SameImage for the meaning.
type Reference struct {
	trust     trust
	transport string
	name      string // HOST/PATH without tag and digest, or a path
	tag       string // of a registry's image, or the image's name in an OCI layout; "" with a digest in a registry
	digest    string // sha256:…, or ""
}

var (
	_ encoding.TextMarshaler   = Reference{}
	_ encoding.TextUnmarshaler = (*Reference)(nil)
)

// String is the canonical form: "quay.io/a/b@sha256:…", "quay.io/a/b:tag",
// "oci:/dir". ParseReference reads it back as the same reference. A digest after
// a local image ("oci:/dir@sha256:…") pins its manifest likewise.
func (r Reference) String() string {
	if r == (Reference{}) {
		return ""
	}
	var b strings.Builder
	switch {
	case r.transport != transportRegistry:
		b.WriteString(r.trust.prefix() + r.transport + ":")
	case r.trust != trustPolicy:
		b.WriteString(r.trust.prefix() + transportRegistry + "://")
	}
	b.WriteString(r.name)
	if r.tag != "" {
		b.WriteString(":" + r.tag)
	}
	if r.digest != "" {
		b.WriteString("@" + r.digest)
	}
	return b.String()
}

// OstreeReference is the reference in the form that a deployment's origin has
// (crates/ostree-ext/src/container/mod.rs).
func (r Reference) OstreeReference() string {
	switch {
	case r.trust != trustPolicy:
		return r.String()
	case r.remote():
		return "ostree-unverified-registry:" + r.String()
	}
	return "ostree-unverified-image:" + r.String()
}

// Digest is the digest that the reference is pinned to, "sha256:…", or "".
func (r Reference) Digest() string { return r.digest }

// IsZero reports whether the reference names nothing.
func (r Reference) IsZero() bool { return r == Reference{} }

// SameImage reports whether both name the same image, by meaning: the same name
// and digest. How the signature is checked does not count, and a tag only where
// there is no digest.
func (r Reference) SameImage(other Reference) bool {
	if r.transport != other.transport || r.name != other.name || r.digest != other.digest {
		return false
	}
	return r.digest != "" || r.tag == other.tag
}

// Pinned is the reference to that digest of the same image. A registry's tag is
// dropped: it may move.
func (r Reference) Pinned(digest string) Reference {
	r.digest = digest
	if r.transport == transportRegistry && digest != "" {
		r.tag = ""
	}
	return r
}

// host is the registry's HOST[:PORT], or "" for local images.
func (r Reference) host() string {
	if !r.remote() {
		return ""
	}
	host, _, _ := strings.Cut(r.name, "/")
	return host
}

// remote reports whether the image comes over the network.
func (r Reference) remote() bool { return r.transport == transportRegistry }

// MarshalText implements encoding.TextMarshaler.
func (r Reference) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Reference) UnmarshalText(text []byte) (err error) {
	if len(text) == 0 {
		*r = Reference{}
		return nil
	}
	*r, err = ParseReference(string(text))
	return err
}

// trust says what must vouch for an image; the words are those of ostree image
// references. The host's signature policy counts in each case.
type trust string

const (
	trustPolicy trust = ""                    // ostree-unverified-*: what the policy accepts
	trustSigned trust = "ostree-image-signed" // the policy must verify a signature
	// trustRemote, with ":NAME": the commit must be signed with the keys of that ostree remote.
	trustRemote trust = "ostree-remote-image"
)

// prefix is what stands before the transport in an ostree image reference.
func (t trust) prefix() string {
	if t == trustPolicy {
		return ""
	}
	return string(t) + ":"
}
