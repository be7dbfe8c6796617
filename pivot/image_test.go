package pivot_test

import (
	"encoding/json"
	"testing"

	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/pivot"
)

// TestSameImage (P91): an image is what its digest says, whatever it is called. A manifest list and the manifest for
// this platform in it are the same image, as far as that is known.
func TestSameImage(t *testing.T) {
	const list, manifest, other = "sha256:11", "sha256:aa", "sha256:bb"
	named := func(digest string) pivot.Image { return pivot.ImageOf(imageref.FromOrigin("r.io/os@" + digest)) }
	known := named(list)
	known.Instance = manifest
	for _, c := range []struct {
		what    string
		running pivot.Deployment
		image   pivot.Image
		same    bool
	}{
		{"the same name", pivot.Deployment{Image: named(manifest)}, named(manifest), true},
		{"another name", pivot.Deployment{Image: named(manifest), Manifest: manifest}, pivot.ImageOf(imageref.FromOrigin("mirror.io/x@" + manifest)), true},
		{"another digest", pivot.Deployment{Image: named(manifest), Manifest: manifest}, named(other), false},
		{"a tag that was imported", pivot.Deployment{Image: pivot.Image{Name: imageref.FromOrigin("r.io/os:x"), Digest: manifest}, Manifest: manifest}, named(manifest), true},
		{"an origin without a digest", pivot.Deployment{Image: pivot.ImageOf(imageref.FromOrigin("r.io/os:x")), Manifest: manifest}, named(manifest), true},
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

// TestSignedNameStays: an image that must be signed has one name, whether it is asked for or in an origin.
func TestSignedNameStays(t *testing.T) {
	asked := pivot.Image{Name: imageref.FromOrigin("ostree-image-signed:docker://r.io/os:x"), Digest: "sha256:aa"}
	booted := pivot.Image{Name: imageref.FromOrigin("ostree-image-signed:registry:r.io/os:x"), Digest: "sha256:aa"}
	plan, err := pivot.Diff(pivot.State{Booted: pivot.Deployment{Image: booted}}, pivot.Target{Image: asked})
	if err != nil || plan.Image.Changed || len(plan.Notes) > 0 {
		t.Errorf("%+v, %q, %v", plan.Image, plan.Notes, err)
	}
}

// TestImageText: an image in a document has the names that follow from the one by which it was asked for, and is itself
// when it is read. One that another program has named keeps its text.
func TestImageText(t *testing.T) {
	const digest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	for name, want := range map[string]string{
		"ostree-unverified-registry:r.io/os:x": `{"reference":"r.io/os@` + digest + `","digest":"` + digest + `","follows":"r.io/os:x","container":"ostree-unverified-registry:r.io/os:x"}`,
		"r.io/os@" + digest:                    `{"reference":"r.io/os@` + digest + `","digest":"` + digest + `","container":"ostree-unverified-registry:r.io/os@` + digest + `"}`,
		"oci:/dir@" + digest:                   `{"reference":"oci:/dir@` + digest + `","digest":"` + digest + `","container":"ostree-unverified-image:oci:/dir@` + digest + `"}`,
	} {
		image := pivot.Image{Name: imageref.FromOrigin(name), Digest: digest, Native: true}
		if text, err := json.Marshal(image); err != nil || string(text) != want {
			t.Errorf("%s: %s, %v", name, text, err)
		}
	}
	names := []imageref.Reference{imageref.FromOrigin("ostree-image-signed:docker://r.io/os@" + digest).Canonical()}
	for _, text := range []string{"r.io/os:x", "ostree-unverified-registry:r.io/os", "ostree-image-signed:registry:r.io/os:x", "ostree-unverified-image:oci:/dir:x", "R.io/OS", "os:x"} {
		names = append(names, imageref.FromOrigin(text))
	}
	for _, name := range names {
		image, again := pivot.Image{Name: name, Digest: digest, Instance: "i", Commit: "c", Version: "v"}, pivot.Image{}
		text, err := json.Marshal(image)
		if err == nil {
			err = json.Unmarshal(text, &again)
		}
		if err != nil || again != image {
			t.Errorf("%s: %+v, %v", text, again, err)
		}
	}
}
