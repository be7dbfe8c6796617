package imageref_test

import (
	"strings"
	"testing"

	"machine-pivot/internal/osimage/imageref"
)

// TestFromOrigin (P91): names in origins keep the text that another program has written, among them those that Parse
// completes or refuses. What they mean is that of the canonical form.
func TestFromOrigin(t *testing.T) {
	const digestA = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	const pinned = "r.io/os@" + digestA
	for reference, want := range map[string]struct {
		shown, canonical string
		moves            bool
	}{
		"ostree-unverified-registry:r.io/os":         {"r.io/os", "r.io/os:latest", true},
		"ostree-unverified-image:docker://r.io/os:a": {"r.io/os:a", "r.io/os:a", true},
		"ostree-image-signed:docker://r.io/os:a":     {"ostree-image-signed:docker://r.io/os:a", "ostree-image-signed:docker://r.io/os:a", true},
		"ostree-image-signed:registry:r.io/os:a":     {"ostree-image-signed:docker://r.io/os:a", "ostree-image-signed:docker://r.io/os:a", true},
		"ostree-image-signed:registry:" + pinned:     {pinned, "ostree-image-signed:docker://" + pinned, false},
		"ostree-remote-registry:fedora:r.io/os:a":    {"ostree-remote-registry:fedora:r.io/os:a", "ostree-remote-image:fedora:docker://r.io/os:a", false},
		"ostree-unverified-image:oci:/dir:x":         {"ostree-unverified-image:oci:/dir:x", "oci:/dir:x", false},
		// Parse refuses these.
		"ostree-unverified-image:registry:R.io/OS": {"R.io/OS", "R.io/OS", false},
		"ostree-unverified-registry:os:a":          {"os:a", "os:a", false},
		"else:r.io/os@sha256:a":                    {"else:r.io/os@sha256:a", "else:r.io/os@sha256:a", false},
		"":                                         {},
	} {
		got := imageref.FromOrigin(reference)
		if got.String() != want.shown || got.Canonical().String() != want.canonical || got.Moves() != want.moves {
			t.Errorf("%q: %q, in the canonical form %q, moves: %v; want %+v", reference, got, got.Canonical(), got.Moves(), want)
		}
		if _, digest, _ := strings.Cut(reference, "@"); got.Digest() != digest || got.IsZero() != (reference == "") {
			t.Errorf("%q: %#v", reference, got)
		}
		if got != imageref.FromOrigin(reference) || got != imageref.FromOrigin(got.String()) && want.shown != pinned {
			t.Errorf("%q is not itself", reference)
		}
	}
	if a, b := imageref.FromOrigin("os:a"), imageref.FromOrigin("os:b"); a == b || a.SameImage(b) {
		t.Error("two names that Parse refuses are one")
	}
}
