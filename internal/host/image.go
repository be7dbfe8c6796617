package host

import (
	"cmp"
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
	if text, ok := strings.CutPrefix(o.CustomURL(), "pivot://"); ok {
		name := imageref.FromOrigin(text)
		return pivot.Image{Name: name, Digest: name.Digest()}
	}
	name := imageref.FromOrigin(o.ContainerImageReference())
	if name.IsZero() {
		return pivot.Image{}
	}
	return pivot.Image{Name: name, Digest: cmp.Or(name.Digest(), manifest)}
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
