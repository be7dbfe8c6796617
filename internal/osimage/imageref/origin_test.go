package imageref_test

import (
	"testing"

	"machine-pivot/internal/osimage/imageref"
)

// TestOfRegistry (P91): names in origins, among them those that Parse completes or refuses.
func TestOfRegistry(t *testing.T) {
	for reference, want := range map[string]struct {
		name, plain string
		registry    bool
	}{
		"ostree-unverified-registry:r.io/os":         {"r.io/os", "r.io/os", true},
		"ostree-unverified-image:docker://r.io/os:a": {"r.io/os:a", "r.io/os:a", true},
		"ostree-unverified-image:registry:R.io/OS":   {"R.io/OS", "R.io/OS", true},
		"ostree-image-signed:docker://r.io/os:a":     {"r.io/os:a", "ostree-image-signed:docker://r.io/os:a", true},
		"ostree-image-signed:registry:r.io/os:a":     {"r.io/os:a", "ostree-image-signed:docker://r.io/os:a", true},
		"ostree-remote-registry:fedora:r.io/os:a":    {"ostree-remote-registry:fedora:r.io/os:a", "ostree-remote-registry:fedora:r.io/os:a", false},
		"ostree-unverified-image:oci:/dir:x":         {"ostree-unverified-image:oci:/dir:x", "ostree-unverified-image:oci:/dir:x", false},
		"":                                           {},
	} {
		name, plain, registry := imageref.OfRegistry(reference)
		if name != want.name || plain != want.plain || registry != want.registry {
			t.Errorf("%q: %q, %q, %v; want %+v", reference, name, plain, registry, want)
		}
	}
	for name, want := range map[string]string{"r.io/os:a": "r.io/os", "r.io:5000/os": "r.io:5000/os", "r.io:5000/os:a": "r.io:5000/os", "os": "os"} {
		if got := imageref.Untagged(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
