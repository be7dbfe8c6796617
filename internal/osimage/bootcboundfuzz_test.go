package osimage

import (
	"strings"
	"testing"

	"machine-pivot/internal/osimage/imageref"
)

// FuzzBound: any quadlet gives one image of a registry, which parses to itself, or an error.
func FuzzBound(f *testing.F) {
	for _, text := range []string{
		"[Image]\nImage=quay.example/a:1\n", "[Container]\nImage = docker://quay.example/a@sha256:" + strings.Repeat("0", 64) + "\n",
		"[Image]\nImage=quay.example/%%a\n[Image]\nAuthFile=/x", "[Image]\n;Image\n#Image=x\nImage=quay.example/a\\\n b", "[image]\nImage=oci:/x", "=\n[\n]\n[]=",
	} {
		f.Add("a.image", text)
		f.Add("a.container", text)
	}
	f.Fuzz(func(t *testing.T, name, text string) {
		var images BoundImages
		err := images.add(name, text)
		if err != nil {
			if len(images.References) > 0 {
				t.Errorf("%q and %v", images.References, err)
			}
			return
		}
		if len(images.References) != 1 {
			t.Fatalf("%d images", len(images.References))
		}
		ref := images.References[0]
		again, err := imageref.Parse(ref.String())
		if err != nil || again != ref || !ref.Remote() || strings.ContainsAny(ref.String(), " \n\x00%") {
			t.Errorf("%q of %q: again %q, %v", ref, text, again, err)
		}
	})
}
