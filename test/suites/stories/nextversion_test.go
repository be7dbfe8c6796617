package stories_test

import (
	"fmt"
	"slices"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"machine-pivot/day2"
	"machine-pivot/test/worlds/hostdir"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/registry"
)

// TestNextVersion: a first boot moves to an image from a container build. A pivot to the next version, with another
// last layer, then fetches only the manifest, the config and that layer.
func TestNextVersion(t *testing.T) {
	kept := []oscontainer.Option{
		oscontainer.WithDerived(oscontainer.File("usr/share/first", "first"), oscontainer.File("usr/share/version", "0")),
		oscontainer.WithDerived(oscontainer.File("etc/second.conf", "second"), oscontainer.File("usr/share/gone", "")),
	}
	last := func(version int) []oscontainer.Option {
		return append(slices.Clone(kept), oscontainer.WithDerived(
			oscontainer.File("usr/share/version", fmt.Sprint(version)), oscontainer.File("usr/share/.wh.gone", "")))
	}
	for name, image := range map[string]func(h *hostdir.Host, version int) v1.Image{
		"derived": func(h *hostdir.Host, version int) v1.Image {
			return h.NativeImage(append(last(version), oscontainer.WithChunks(3))...)
		},
		"plain, 300 layers": func(h *hostdir.Host, version int) v1.Image { return h.PlainImage(297, last(version)...) },
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "derived" {
				t.Skip("hundreds of layers")
			}
			h := newHost(t)
			h.RepoConfig("core.fsync", "false") // syncing every layer is slow
			serve(t, h, image(h, 1))
			arrive(t, h, "ostree")
			expectVersion(t, h, "1")

			next := image(h, 2)
			serve(t, h, next)
			since, before := h.Registry.Requests(), h.Registry.BytesServed()
			r := day2.Rebase{Machine: newMachine(t, h), Image: h.Image}
			if changed, err := r.Run(t.Context(), day2.RunOptions{}); err != nil || !changed {
				t.Fatalf("changed %v, %v", changed, err)
			}
			expectFetchedLast(t, h, next, since, before)
			expectVersion(t, h, "1") // until the reboot
			h.Boot()
			expectNew(t, h)
			expectVersion(t, h, "2")
			expectRecognized(t, h)
		})
	}
}

// expectVersion checks that the running system has the derived layers of a version.
func expectVersion(t *testing.T, h *hostdir.Host, version string) {
	t.Helper()
	for path, want := range map[string]string{"/usr/share/version": version, "/usr/share/first": "first", "/etc/second.conf": "second"} {
		if got := string(h.Read(path)); got != want {
			t.Errorf("%s holds %q, want %q", path, got, want)
		}
	}
	if h.Read("/usr/share/gone") != nil {
		t.Error("a file is there that the last layer removes")
	}
}

// expectFetchedLast checks that the registry has served the manifest, the config and the last
// layer of an image, each once. since and before are its earlier counts of requests and bytes.
func expectFetchedLast(t *testing.T, h *hostdir.Host, img v1.Image, since int, before int64) {
	t.Helper()
	want, err := registry.LastLayer(img)
	if err != nil {
		t.Fatal(err)
	}
	if got := h.Registry.Pulled(since); !slices.Equal(got, want) {
		t.Errorf("the registry was asked for %q, want %q", got, want)
	}
	manifest, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	last := manifest.Layers[len(manifest.Layers)-1]
	if sent := h.Registry.BytesServed() - before; sent != manifest.Config.Size+last.Size {
		t.Errorf("%d bytes were sent, want %d and %d", sent, manifest.Config.Size, last.Size)
	}
}
