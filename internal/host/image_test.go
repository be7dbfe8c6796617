package host

import (
	"testing"

	"machine-pivot/internal/ostree"
	"machine-pivot/pivot"
)

// imageText is what is known of an image.
type imageText struct{ Reference, Digest, Follows string }

func textOf(i pivot.Image) imageText {
	return imageText{i.Reference().String(), i.Digest, i.Follows().String()}
}

// TestImageOf (P91): what an origin says of a deployment's image, and what its commit does.
func TestImageOf(t *testing.T) {
	const digest, manifest = "sha256:aa", "sha256:bb"
	for origin, want := range map[string]imageText{
		"":                                     {},
		"refspec=fedora:stable":                {},
		"custom-url=pivot://r.io/os@" + digest: {Reference: "r.io/os@" + digest, Digest: digest},
		"container-image-reference=ostree-unverified-registry:r.io/os:stable":           {Reference: "r.io/os@" + manifest, Digest: manifest, Follows: "r.io/os:stable"},
		"container-image-reference=ostree-unverified-registry:r.io:5000/os":             {Reference: "r.io:5000/os@" + manifest, Digest: manifest, Follows: "r.io:5000/os"},
		"container-image-reference=ostree-unverified-image:docker://r.io/os:stable":     {Reference: "r.io/os@" + manifest, Digest: manifest, Follows: "r.io/os:stable"},
		"container-image-reference=ostree-image-signed:registry:r.io/os:stable":         {Reference: "ostree-image-signed:docker://r.io/os@" + manifest, Digest: manifest, Follows: "ostree-image-signed:docker://r.io/os:stable"},
		"container-image-reference=ostree-unverified-registry:r.io/os@" + digest:        {Reference: "r.io/os@" + digest, Digest: digest},
		"container-image-reference=ostree-unverified-registry:r.io/os:stable@" + digest: {Reference: "r.io/os:stable@" + digest, Digest: digest},
		"container-image-reference=ostree-unverified-image:oci:/dir:x":                  {Reference: "ostree-unverified-image:oci:/dir:x", Digest: manifest},
		"container-image-reference=ostree-remote-registry:fedora:r.io/os:stable":        {Reference: "ostree-remote-registry:fedora:r.io/os:stable", Digest: manifest},
	} {
		o, err := ostree.ParseOrigin([]byte("[origin]\n" + origin + "\n"))
		if err != nil {
			t.Fatal(err)
		}
		if got := textOf(imageOf(o, manifest)); got != want {
			t.Errorf("%s: %+v, want %+v", origin, got, want)
		}
	}
	tagged := ostree.ContainerOrigin("ostree-unverified-registry:r.io/os:stable")
	if got := textOf(imageOf(tagged, "")); got != (imageText{Reference: "r.io/os:stable", Follows: "r.io/os:stable"}) {
		t.Errorf("without metadata: %+v", got)
	}
}
