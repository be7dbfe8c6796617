package pivot_test

import (
	"testing"

	"machine-pivot/pivot"
)

// TestSameImage (P91): an image is what its digest says, whatever it is called. A manifest list and the manifest for
// this platform in it are the same image, as far as that is known.
func TestSameImage(t *testing.T) {
	const list, manifest, other = "sha256:11", "sha256:aa", "sha256:bb"
	named := func(digest string) pivot.Image { return pivot.Image{Reference: "r.io/os@" + digest, Digest: digest} }
	known := named(list)
	known.Instance = manifest
	for _, c := range []struct {
		what    string
		running pivot.Deployment
		image   pivot.Image
		same    bool
	}{
		{"the same name", pivot.Deployment{Image: named(manifest)}, named(manifest), true},
		{"another name", pivot.Deployment{Image: named(manifest), Manifest: manifest}, pivot.Image{Reference: "mirror.io/x@" + manifest, Digest: manifest}, true},
		{"another digest", pivot.Deployment{Image: named(manifest), Manifest: manifest}, named(other), false},
		{"a tag that was imported", pivot.Deployment{Image: pivot.Image{Reference: "r.io/os@" + manifest, Digest: manifest, Follows: "r.io/os:x"}, Manifest: manifest}, named(manifest), true},
		{"an origin without a digest", pivot.Deployment{Image: pivot.Image{Reference: "r.io/os:x"}, Manifest: manifest}, named(manifest), true},
		{"a list by its name", pivot.Deployment{Image: named(list), Manifest: manifest}, named(list), true},
		{"a list whose manifest is known", pivot.Deployment{Image: named(manifest), Manifest: manifest}, known, true},
		{"a list whose manifest is not known", pivot.Deployment{Image: named(manifest), Manifest: manifest}, named(list), false},
		{"the manifest of a known list", pivot.Deployment{Image: known, Manifest: manifest}, named(manifest), true},
		{"a legacy image", pivot.Deployment{Image: named(list)}, named(other), false},
		{"no image", pivot.Deployment{Image: named(list), Manifest: manifest}, pivot.Image{}, false},
		{"not from an image", pivot.Deployment{}, pivot.Image{}, false},
	} {
		if got := c.running.Runs(c.image); got != c.same {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}
