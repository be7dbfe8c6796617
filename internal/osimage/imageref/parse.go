package imageref

import (
	_ "crypto/sha256" // the library supports only digests with a hash that is linked in
	_ "crypto/sha512" // supported by the library, so that this package's error names the digest
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"go.podman.io/image/v5/docker/reference"

	"machine-pivot/internal/fault"
)

// PullspecPath is a file of the old pivot tool with one reference: the image of a pivot by hand if
// none is given.
const PullspecPath = "/etc/pivot/image-pullspec"

// Parse parses an image reference:
//
//	[docker://]HOST/PATH[:TAG][@DIGEST]
//	oci:DIR[:REF]  oci-archive:FILE[:REF]  dir:DIR  docker-archive:FILE   each [@DIGEST]
//	ostree-unverified-registry:NAME    ostree-unverified-image:TRANSPORT:NAME
//	ostree-image-signed:TRANSPORT:NAME ostree-remote-image:REMOTE:TRANSPORT:NAME
//	ostree-remote-registry:REMOTE:NAME
//
// If there are a tag and a digest, the tag is dropped. Names without a registry host are
// rejected; docker.io is not assumed.
func Parse(s string) (Reference, error) {
	p, err := parseAny(s)
	if err != nil {
		return Reference{}, fault.New(fault.BadInput, "cannot parse image reference %q: %w", s, err).
			WithHint("an image is named HOST[:PORT]/PATH with :TAG or @sha256:… behind it, or by where it lies, as oci:DIR or oci-archive:FILE")
	}
	return of(p), nil
}

func parseAny(s string) (parts, error) {
	if s == "" {
		return parts{}, errors.New("it is empty")
	}
	if strings.ContainsFunc(s, func(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) }) {
		return parts{}, errors.New("it contains white space or control characters")
	}
	scheme, rest, _ := strings.Cut(s, ":")
	switch scheme {
	case "ostree-unverified-registry":
		return parseName(rest)
	case "ostree-unverified-image":
		return parseImageRef(rest)
	case string(trustSigned):
		return trusting(trustSigned)(parseImageRef(rest))
	case string(trustRemote), "ostree-remote-registry":
		remote, image, _ := strings.Cut(rest, ":")
		if remote == "" || strings.Contains(remote, "/") {
			return parts{}, fmt.Errorf("%s: is not followed by the name of an ostree remote", scheme)
		}
		parseRest := parseImageRef
		if scheme == "ostree-remote-registry" {
			parseRest = parseName
		}
		return trusting(trustRemote + ":" + trust(remote))(parseRest(image))
	}
	if isTransport(scheme) {
		return parseImageRef(s)
	}
	return parseName(s)
}

// trusting returns a function that sets the trust of a reference that was just parsed.
func trusting(t trust) func(parts, error) (parts, error) {
	return func(r parts, err error) (parts, error) {
		r.trust = t
		return r, err
	}
}

// isTransport reports whether the word before the first colon is a transport rather than a
// registry's host. The word "registry" is a host here ("registry:5000/x"); it is a transport
// only in ostree image references.
func isTransport(word string) bool {
	return slices.Contains([]Transport{
		Registry, OCI, OCIArchive, Dir, DockerArchive, "containers-storage", "docker-daemon",
	}, Transport(word))
}

// parseImageRef parses TRANSPORT:NAME.
func parseImageRef(s string) (parts, error) {
	transport, name, ok := strings.Cut(s, ":")
	if !ok {
		return parts{}, fmt.Errorf("%q is not TRANSPORT:NAME", s)
	}
	switch transport := Transport(transport); transport {
	case "registry":
		return parseName(name)
	case Registry:
		name, ok := strings.CutPrefix(name, "//")
		if !ok {
			return parts{}, errors.New("docker: must be followed by //")
		}
		return parseName(name)
	case OCI, OCIArchive, Dir, DockerArchive:
		return parsePath(transport, name)
	}
	return parts{}, fmt.Errorf("the transport %q is not supported (docker://, oci:, oci-archive:, dir:, docker-archive: are)", transport)
}

// parseName parses HOST/PATH[:TAG][@DIGEST].
func parseName(s string) (parts, error) {
	if err := checkName(s); err != nil {
		return parts{}, err
	}
	named, err := reference.ParseNormalizedNamed(s)
	if err != nil {
		return parts{}, err
	}
	r := parts{transport: Registry, name: named.Name()}
	if digested, ok := named.(reference.Digested); ok {
		r.digest = digested.Digest().String()
		return r, nil
	}
	r.tag = "latest"
	if tagged, ok := named.(reference.Tagged); ok {
		r.tag = tagged.Tag()
	}
	return r, nil
}

// checkName detects mistakes for which the library's error would not be helpful: a malformed
// digest, and a missing registry host.
func checkName(s string) error {
	name, digest, pinned := strings.Cut(s, "@")
	if strings.HasPrefix(name, "sha256:") && !strings.Contains(name, "/") {
		name, digest, pinned = "", name, true
	}
	var wrong []string
	host, _, ok := strings.Cut(name, "/")
	switch {
	case strings.HasPrefix(name, "["):
		wrong = append(wrong, "the library that reads images, as that of podman, takes no IPv6 address for a registry: give it a name in DNS or /etc/hosts")
	case name == "" && pinned:
		wrong = append(wrong, "a digest alone says neither where the image is nor which signature policy it has to meet")
	case !ok || !strings.ContainsAny(host, ".:") && host != "localhost":
		wrong = append(wrong, "the name has no registry host (HOST[:PORT]/PATH)")
	}
	if digest != "" && !isDigest(digest) {
		wrong = append(wrong, fmt.Sprintf("the digest %s is not sha256:<64 hex digits>", digest))
	}
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}
	return nil
}

// parsePath parses PATH[:REF][@DIGEST] of a local image.
func parsePath(transport Transport, s string) (parts, error) {
	r := parts{transport: transport, name: s}
	if at := strings.LastIndexByte(s, '@'); at >= 0 && isDigest(s[at+1:]) {
		r.name, r.digest = s[:at], s[at+1:]
	}
	if transport == OCI || transport == OCIArchive {
		path, tag, cut := strings.Cut(r.name, ":")
		if cut && !isRefName(tag) {
			return parts{}, fmt.Errorf("%q is not the name of an image in an OCI layout", tag)
		}
		r.name, r.tag = path, tag
	}
	if transport == DockerArchive && strings.Contains(r.name, ":") {
		return parts{}, errors.New("a docker-archive is named by its file alone, which has no colon in its name")
	}
	if r.name == "" {
		return parts{}, fmt.Errorf("%s: is not followed by a path", transport)
	}
	return r, nil
}

// isRefName reports whether s has only characters that are allowed in an
// org.opencontainers.image.ref.name. The library checks the rest of the grammar.
func isRefName(s string) bool {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	return strings.Trim(s, letters+"-._:@+/") == "" && s != "" && strings.ContainsAny(s[:1], letters)
}

// isDigest reports whether s is "sha256:" followed by 64 lower-case hex digits.
func isDigest(s string) bool {
	hex, ok := strings.CutPrefix(s, "sha256:")
	return ok && len(hex) == 64 && strings.Trim(hex, "0123456789abcdef") == ""
}
