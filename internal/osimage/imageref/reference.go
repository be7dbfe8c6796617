// Package imageref represents image references as values. It parses, compares, pins and formats
// them. It does no I/O; the image that a reference names need not exist.
//
// Two families of formats are supported: those of podman and skopeo (containers-transports(5)), and those of ostree. A
// deployment's origin has the latter, which specify how the image's signature is verified
// (crates/ostree-ext/src/container/mod.rs). Supported transports are registries and the local oci, oci-archive, dir and
// docker-archive; digests are SHA-256.
package imageref

import (
	"encoding"
	"strings"
	"unique"
)

// Transport is the type of an image's location, as named in containers-transports(5).
type Transport string

// The transports.
const (
	Registry      Transport = "docker"
	OCI           Transport = "oci"
	OCIArchive    Transport = "oci-archive"
	Dir           Transport = "dir"
	DockerArchive Transport = "docker-archive"
)

// Reference names an OS image. The zero value names nothing; other values come from Parse or FromOrigin. The
// operator == compares references literally; use SameImage to compare their meaning. A reference is a handle, because it
// is in many values that are copied.
type Reference struct{ to unique.Handle[parts] }

// parts are what a reference consists of.
type parts struct {
	text      string // as another program wrote it; "": it is in the canonical form
	trust     trust
	transport Transport
	name      string // HOST/PATH without tag and digest, or a path
	tag       string // the tag, or the image's name in an OCI layout; "" for a registry's image with a digest
	digest    string // sha256:…, or ""
}

// of returns the reference with these parts.
func of(p parts) Reference {
	if p == (parts{}) {
		return Reference{}
	}
	return Reference{unique.Make(p)}
}

// parts returns the parts of the reference.
func (r Reference) parts() parts {
	if r.IsZero() {
		return parts{}
	}
	return r.to.Value()
}

var (
	_ encoding.TextMarshaler   = Reference{}
	_ encoding.TextUnmarshaler = (*Reference)(nil)
)

// String returns the canonical form: "quay.io/a/b@sha256:…", "quay.io/a/b:tag", "oci:/dir".
// Parse parses it to the same reference. A digest after a local image ("oci:/dir@sha256:…")
// pins its manifest too. A reference of FromOrigin has the text of its writer.
func (r Reference) String() string {
	p := r.parts()
	if p.text != "" {
		return p.text
	}
	if p.transport == Registry && p.trust == trustPolicy {
		return p.image()
	}
	return p.trust.prefix() + r.TransportName()
}

// TransportName returns the reference in the format of containers-transports(5), without
// ostree's prefix: "docker://quay.io/a/b:tag", "oci:/dir".
func (r Reference) TransportName() string {
	switch p := r.parts(); {
	case r.IsZero():
		return ""
	case p.transport == Registry:
		return string(Registry) + "://" + p.image()
	default:
		return string(p.transport) + ":" + p.image()
	}
}

// image returns NAME[:TAG][@DIGEST].
func (p parts) image() string {
	image := p.name
	if p.tag != "" {
		image += ":" + p.tag
	}
	if p.digest != "" {
		image += "@" + p.digest
	}
	return image
}

// OstreeReference returns the reference in the format of a deployment's origin
// (crates/ostree-ext/src/container/mod.rs).
func (r Reference) OstreeReference() string {
	switch r = r.Canonical(); {
	case r.parts().trust != trustPolicy:
		return r.String()
	case r.Remote():
		return "ostree-unverified-registry:" + r.String()
	}
	return "ostree-unverified-image:" + r.String()
}

// Canonical returns the reference without the text of its writer, unless it has nothing else.
func (r Reference) Canonical() Reference {
	p := r.parts()
	if p.transport != "" {
		p.text = ""
	}
	return of(p)
}

// Digest returns the digest that the reference is pinned to, "sha256:…", or "".
func (r Reference) Digest() string { return r.parts().digest }

// IsZero reports whether the reference names nothing.
func (r Reference) IsZero() bool { return r == Reference{} }

// SameImage reports whether two references name the same image: they have the same name and
// digest, or the same name and tag if there is no digest. It ignores how the signature is
// verified.
func (r Reference) SameImage(other Reference) bool {
	a, b := r.parts(), other.parts()
	if a.transport == "" {
		return r == other
	}
	if a.transport != b.transport || a.name != b.name || a.digest != b.digest {
		return false
	}
	return a.digest != "" || a.tag == b.tag
}

// Pinned returns the reference pinned to a digest. A tag in a registry is dropped, because it
// may move.
func (r Reference) Pinned(digest string) Reference {
	p := r.parts()
	p.text, p.digest = "", digest
	if p.transport == Registry && digest != "" {
		p.tag = ""
	}
	return of(p)
}

// At returns the reference with another HOST/PATH or path, such as that of a mirror.
func (r Reference) At(name string) Reference {
	p := r.parts()
	p.text, p.name = "", name
	return of(p)
}

// Transport returns the transport.
func (r Reference) Transport() Transport { return r.parts().transport }

// Remote reports whether the image is in a registry.
func (r Reference) Remote() bool { return r.parts().transport == Registry }

// Moves reports whether the reference is a tag in a registry that pivot can follow: the tag may name another image later.
func (r Reference) Moves() bool { return r.Remote() && r.Digest() == "" && r.OstreeRemote() == "" }

// Name returns HOST/PATH without tag and digest, or the path of a local image.
func (r Reference) Name() string { return r.parts().name }

// Host returns the registry's HOST[:PORT], or "" for local images.
func (r Reference) Host() string {
	if !r.Remote() {
		return ""
	}
	host, _, _ := strings.Cut(r.Name(), "/")
	return host
}

// Tag returns the tag of a registry's image, or the image's name in an OCI layout. It returns
// "" if there is none, and for a registry's image with a digest.
func (r Reference) Tag() string { return r.parts().tag }

// Signed reports whether the signature policy must verify a signature of the image.
func (r Reference) Signed() bool { return r.parts().trust == trustSigned }

// OstreeRemote returns the name of the ostree remote with the keys for the signature of the image's commit, or "".
func (r Reference) OstreeRemote() string {
	if remote, ok := strings.CutPrefix(string(r.parts().trust), string(trustRemote)+":"); ok {
		return remote
	}
	return ""
}

// MarshalText implements encoding.TextMarshaler.
func (r Reference) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *Reference) UnmarshalText(text []byte) (err error) {
	if len(text) == 0 {
		*r = Reference{}
		return nil
	}
	*r, err = Parse(string(text))
	return err
}

// trust specifies how the signature of an image is verified, as in ostree image references.
// The host's signature policy is applied in each case.
type trust string

const (
	trustPolicy trust = ""                    // ostree-unverified-*: what the policy accepts
	trustSigned trust = "ostree-image-signed" // the policy must verify a signature
	// trustRemote, with ":NAME": the commit must be signed with the keys of that ostree remote.
	trustRemote trust = "ostree-remote-image"
)

// prefix returns the part before the transport in an ostree image reference.
func (t trust) prefix() string {
	if t == trustPolicy {
		return ""
	}
	return string(t) + ":"
}
