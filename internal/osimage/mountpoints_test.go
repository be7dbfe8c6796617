package osimage_test

import (
	"fmt"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/ostree"
	"machine-pivot/test/worlds/registry"
)

// TestMountPoints: an image of any format that lacks a directory onto which its boot mounts is refused by the
// directory's name. One that is only stored gets a warning.
func TestMountPoints(t *testing.T) {
	h := newHost(t, registry.Options{})
	without := func(name string, change func(o *osTree)) func(t *testing.T) *osTree {
		return func(t *testing.T) *osTree {
			o := newOSTree(t)
			o.remove(name)
			if change != nil {
				change(o)
			}
			return o
		}
	}
	composefs := func(o *osTree) { o.write(prepareRoot, "[composefs]\nenabled = yes\n") }
	native := func(o *osTree) v1.Image { return o.encapsulated() }
	plain := func(o *osTree) v1.Image { return plainImage(o.t, o, 3) }
	with := func(layer ...entry) func(o *osTree) v1.Image {
		return func(o *osTree) v1.Image { return derivedFrom(o.t, o.encapsulated(), layer) }
	}
	for n, c := range []struct {
		name string
		tree func(t *testing.T) *osTree
		pack func(o *osTree) v1.Image
		want string // "" if the image is accepted
	}{
		{"plain", without("sysroot", nil), plain, "/sysroot"},
		{"native", without("sysroot", nil), native, "/sysroot"},
		{"legacy", without("sysroot", nil), func(o *osTree) v1.Image { return legacyImage(o.t, o) }, "/sysroot"},
		{"by a whiteout", newOSTree, with(gone("sysroot")), "/sysroot"},
		{"a file", newOSTree, with(regular("sysroot", "x")), "/sysroot"},
		{"a link", newOSTree, with(symlink("sysroot", "var/sysroot")), "/sysroot"},
		{"a root that is not seen", func(t *testing.T) *osTree {
			o := newOSTree(t)
			hiddenRoot(o)
			return o
		}, with(gone("sysroot")), ""},
		{"no dev in a root that is read-only", without("dev", composefs), native, "/dev"},
		{"no var in a root that is read-only", without("var", composefs), native, "/var"},
		{"no dev in a root that may be writable", without("dev", nil), native, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.t = t
			name, img := fmt.Sprintf("mount-%d", n), c.pack(c.tree(t))
			if c.want != "" {
				h.refuses(name, img, fault.Refused, "it lacks "+c.want+", as a directory")
				h.stores = true
				defer func() { h.stores = false }()
			}
			repo := bare(t)
			result := h.takes(name, img, repo)
			if warned := strings.Contains(strings.Join(result.Notes, "\n"), "warning: the image would not boot"); warned != (c.want != "") {
				t.Errorf("notes %q", result.Notes)
			}
			commit, err := ostree.ParseChecksum(result.Commit)
			if err != nil {
				t.Fatal(err)
			}
			stored := openRepo(t, repo)
			setup, err := ostree.ReadPrepareRoot(func(path string) (ostree.Found, bool, error) { return stored.Look(commit, path) })
			if err == nil {
				err = osimage.CheckMountPoints(commit, setup, stored.Objects)
			}
			if (fault.KindOf(err) == fault.Refused) != (c.want != "") {
				t.Errorf("stored, and to be booted: %v", err)
			}
		})
	}
}
