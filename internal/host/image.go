package host

import (
	"strings"

	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// imageOf returns the image that a deployment was made from, according to its origin: a container image reference,
// or for a legacy image the custom URL that pivot and the machine-config-daemon write. If the origin names a tag,
// what it names may have changed since; the deployed image is the one of the commit's manifest. As bootc does, it
// takes a reference with a tag and a digest for one with the digest.
func imageOf(o ostree.Origin, manifest string) pivot.Image {
	if reference, ok := strings.CutPrefix(o.CustomURL(), "pivot://"); ok {
		return pinned(reference)
	}
	reference := o.ContainerImageReference()
	name, plain, registry := ofRegistry(reference)
	switch {
	case reference == "":
		return pivot.Image{}
	case !registry:
		image := pinned(reference)
		if image.Digest == "" {
			image.Digest = manifest
		}
		return image
	case strings.Contains(name, "@"):
		return pinned(name)
	}
	image := pivot.Image{Reference: name, Follows: plain}
	if manifest != "" {
		image.Reference, image.Digest = untagged(name)+"@"+manifest, manifest
	}
	return image
}

// pinned returns the image of a reference that has a digest, or none.
func pinned(reference string) pivot.Image {
	_, digest, _ := strings.Cut(reference, "@")
	return pivot.Image{Reference: reference, Digest: digest}
}

// ofRegistry returns the name HOST/PATH[:TAG][@DIGEST] in an ostree image reference, and the reference in the form in
// which package imageref writes it, which keeps how the image's signature is verified. registry is false for an
// image that comes from elsewhere or is verified with the keys of an ostree remote.
func ofRegistry(reference string) (name, plain string, registry bool) {
	for _, scheme := range []string{"ostree-unverified-registry:", "ostree-unverified-image:docker://", "ostree-unverified-image:registry:"} {
		if name, ok := strings.CutPrefix(reference, scheme); ok {
			return name, name, true
		}
	}
	const signed = "ostree-image-signed:"
	for _, scheme := range []string{signed + "docker://", signed + "registry:"} {
		if name, ok := strings.CutPrefix(reference, scheme); ok {
			return name, signed + "docker://" + name, true
		}
	}
	return reference, reference, false
}

// untagged returns HOST/PATH of HOST/PATH:TAG.
func untagged(name string) string {
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		return name[:i]
	}
	return name
}

// manifestOf returns the digest of the manifest from which a commit was imported; "" if the commit does not say so, or
// cannot be read, which is an error for those that need more of it.
func (h *Host) manifestOf(commit ostree.Checksum) string {
	repo, err := h.ReadRepo()
	if err != nil {
		return ""
	}
	info, err := repo.LoadCommit(commit)
	if err != nil {
		return ""
	}
	return info.ManifestDigest()
}
