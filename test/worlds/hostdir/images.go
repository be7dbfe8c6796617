package hostdir

import (
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"machine-pivot/test/worlds/oscontainer"
)

// NativeImage returns the next system as an ostree-native container image.
func (h *Host) NativeImage(opts ...oscontainer.Option) v1.Image {
	h.t.Helper()
	bare := filepath.Join(h.t.TempDir(), "bare")
	if h.Commit == h.made.next {
		h.must(h.made.unpackBare(bare))
	} else {
		h.must(makeBare(bare, h.Archive, h.Commit))
	}
	img, err := oscontainer.Encapsulated(bare, h.Commit, append(opts, oscontainer.WithWorkDir(h.t.TempDir()))...)
	h.must(err)
	return img
}

// PlainImage returns the next system as an image without an ostree commit, with n layers and those
// of opts on top.
func (h *Host) PlainImage(n int, opts ...oscontainer.Option) v1.Image {
	h.t.Helper()
	tree := filepath.Join(h.t.TempDir(), "tree")
	h.run("ostree", "checkout", "--repo="+h.Archive, h.Commit, tree)
	img, err := oscontainer.PlainTree(tree, "B.2", n, append(opts, oscontainer.WithWorkDir(h.t.TempDir()))...)
	h.must(err)
	return img
}

// NoOS pushes an image with neither an ostree commit nor a system, and returns its reference.
func (h *Host) NoOS() (reference string) {
	h.t.Helper()
	return h.pushContent(oscontainer.WithoutRepo(), oscontainer.WithLabel("com.coreos.ostree-commit", ""))
}

// Push pushes an image and returns its reference.
func (h *Host) Push(img v1.Image) (reference string) {
	h.t.Helper()
	digest, err := h.Registry.Push(h.t.Context(), "os/native", "b", img)
	h.must(err)
	return h.Registry.Host() + "/os/native@" + digest
}

// Serve pushes an image and makes it the host's next system.
func (h *Host) Serve(img v1.Image) { h.Image = h.Push(img) }
