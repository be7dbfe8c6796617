package host

import (
	"strings"

	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// imageOf returns the image that a deployment was made from, by its origin: a container image reference, or a legacy
// image's custom URL, which pivot and the machine-config-daemon write. If the origin names a tag, what it names may
// have changed since; the deployed image is the one of the commit's manifest. As bootc does, it takes a reference with
// a tag and a digest for one with the digest.
func imageOf(o ostree.Origin, manifest string) pivot.Image {
	if reference, ok := strings.CutPrefix(o.CustomURL(), "pivot://"); ok {
		return pinned(reference)
	}
	reference := o.ContainerImageReference()
	name, plain, registry := imageref.OfRegistry(reference)
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
		image.Reference, image.Digest = imageref.Untagged(name)+"@"+manifest, manifest
	}
	return image
}

// pinned returns the image of a reference that has a digest, or none.
func pinned(reference string) pivot.Image {
	_, digest, _ := strings.Cut(reference, "@")
	return pivot.Image{Reference: reference, Digest: digest}
}

// manifestOf returns the digest of the manifest from which a commit was imported; "" if the commit does not say so, or
// cannot be read. Callers that need more of the commit get that error.
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
