package osimage_test

import (
	"errors"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/registry"
)

const (
	boundApp  = "quay.example/app:1"
	boundLink = osimage.BoundDir + "/app.image"
	quadlet   = "usr/share/containers/systemd/app.image"
)

// binds adds an application image to a tree.
func (o *osTree) binds() *osTree {
	o.write(quadlet, "[Image]\nImage="+boundApp+"\n")
	o.link(boundLink, "/"+quadlet)
	return o
}

// TestBind: for each format, Bind is called once with the application images that the whole image binds, and a
// refused image leaves only complete layers behind.
func TestBind(t *testing.T) {
	h := newHost(t, registry.Options{})
	derive := func(t *testing.T, base v1.Image, entries ...oscontainer.Entry) v1.Image {
		img, err := oscontainer.Derive(base, oscontainer.WithDerived(entries...), oscontainer.WithWorkDir(t.TempDir()))
		if err != nil {
			t.Fatal(err)
		}
		return img
	}
	for _, c := range []struct {
		name  string
		image func(t *testing.T) v1.Image
		want  string
	}{
		{"encapsulated", func(t *testing.T) v1.Image { return newOSTree(t).binds().encapsulated() }, boundApp},
		{"nothing", func(t *testing.T) v1.Image { return newOSTree(t).encapsulated() }, ""},
		{"by a derived layer", func(t *testing.T) v1.Image {
			return derive(t, newOSTree(t).encapsulated(), regular(quadlet, "[Image]\nImage="+boundApp+"\n"), oscontainer.Symlink(boundLink, "/"+quadlet))
		}, boundApp},
		{"no more", func(t *testing.T) v1.Image {
			return derive(t, newOSTree(t).binds().encapsulated(), regular(osimage.BoundDir+"/.wh.app.image", ""))
		}, ""},
		{"plain", func(t *testing.T) v1.Image { return plainImage(t, newOSTree(t).binds(), 3) }, boundApp},
		{"legacy", func(t *testing.T) v1.Image { return legacyImage(t, newOSTree(t).binds()) }, boundApp},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.t = t
			ref, _ := h.push("binds-"+strings.ReplaceAll(c.name, " ", "-"), c.image(t))
			repo, refused, calls := bare(t), errors.New("refused"), 0
			try := func(answer error) (osimage.Result, error) {
				image, err := h.puller.Open(t.Context(), ref)
				if err != nil {
					t.Fatal(err)
				}
				defer image.Close()
				image.Bind = func(images osimage.BoundImages, outstanding int64) error {
					calls++
					if c.name != "encapsulated" && c.name != "nothing" && outstanding != 0 {
						t.Errorf("%d bytes are outstanding when all layers are read", outstanding)
					}
					var got []string
					for _, r := range images.References {
						got = append(got, r.String())
					}
					if strings.Join(got, " ") != c.want || images.Err() != nil {
						t.Errorf("told %q, %v, want %q", got, images.Err(), c.want)
					}
					return answer
				}
				return image.Import(t.Context(), openRepo(t, repo), nil)
			}
			if _, err := try(refused); !errors.Is(err, refused) || strings.Contains(err.Error(), "layer ") || calls != 1 {
				t.Errorf("error %v after %d calls", err, calls)
			}
			for ref := range allRefs(t, repo) {
				if !strings.HasPrefix(ref, "ostree/container/blob/") {
					t.Errorf("ref %s is left", ref)
				}
			}
			for range 2 { // the second time nothing is missing
				calls = 0
				result, err := try(nil)
				if err != nil || calls != 1 || strings.Join(result.BoundImages, " ") != c.want {
					t.Errorf("%v after %d calls, result %q, want %q", err, calls, result.BoundImages, c.want)
				}
			}
		})
	}
}

// TestBindEarly: if an image without derived layers is refused for what it binds, the layers that are not being
// downloaded yet are not fetched.
func TestBindEarly(t *testing.T) {
	refusedEarly(t, newOSTree(t).binds(), "app.image", func(image *osimage.Opened) {
		image.Bind = func(_ osimage.BoundImages, outstanding int64) error {
			if outstanding <= 0 || outstanding >= image.Bytes {
				t.Errorf("%d of %d bytes are outstanding", outstanding, image.Bytes)
			}
			return fault.New(fault.Refused, "no")
		}
	})
}
