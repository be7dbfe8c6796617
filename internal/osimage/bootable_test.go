package osimage_test

import (
	"fmt"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/registry"
)

// TestNotBootable (D81): what libostree could not deploy, or would take from the running system, is
// refused by name as an invalid image.
func TestNotBootable(t *testing.T) {
	h := newHost(t, registry.Options{})
	o := newOSTree(t)
	const kernel, initramfs = "usr/lib/modules/6.1.0/vmlinuz", "usr/lib/modules/6.1.0/initramfs.img"
	for n, c := range []struct {
		name   string
		layers [][]entry
		want   string // "" if the image is accepted
	}{
		{"etc a file", [][]entry{{gone("etc")}, {regular("etc", "x")}}, "/usr/etc, or /etc of a layer, is a file or a link"},
		{"usr/etc a file", [][]entry{{gone("etc")}, {regular("usr/etc", "x")}}, "/usr/etc, or /etc of a layer, is a file or a link"},
		{"etc a link", [][]entry{{gone("etc")}, {symlink("etc", "share/etc")}}, "/usr/etc, or /etc of a layer, is a file or a link"},
		{"the kernel a link out of the image", [][]entry{{symlink(kernel, "/boot/vmlinuz")}}, "/" + kernel + " is a link that leads to no file"},
		{"the kernel a link to nothing", [][]entry{{symlink(kernel, "nothing")}}, "/" + kernel + " is a link that leads to no file"},
		{"the kernel a link to itself", [][]entry{{symlink(kernel, "vmlinuz")}}, "/" + kernel + " is a link that leads to no file"},
		{"the kernel a link to a directory", [][]entry{{symlink(kernel, "../../../lib")}}, "/" + kernel + " is a link that leads to no file"},
		{"the initramfs a link out of the image", [][]entry{{symlink(initramfs, "/boot/initramfs.img")}}, "/" + initramfs + " is a link that leads to no file"},
		{"the kernel a link in the image", [][]entry{{symlink(kernel, "../../kernels/1"), regular("usr/lib/kernels/1", "k")}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			sample.Short(t, 4)
			h.t, o.t = t, t
			img := plainImage(t, o, 3)
			for _, layer := range c.layers {
				var err error
				if img, err = oscontainer.Derive(img, oscontainer.WithDerived(layer...), oscontainer.WithWorkDir(t.TempDir())); err != nil {
					t.Fatal(err)
				}
			}
			if c.want != "" {
				h.refuses(fmt.Sprintf("bootable-%d", n), img, fault.BadInput, c.want)
				return
			}
			ref, _ := h.push("bootable", img)
			if _, err := h.importRef(ref, bare(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestStoredWithoutName (D81): an image whose os-release names nothing can be stored, with a
// warning, and is refused where it is to boot, also if it is stored already.
func TestStoredWithoutName(t *testing.T) {
	h := newHost(t, registry.Options{})
	o := newOSTree(t)
	img, err := oscontainer.Derive(plainImage(t, o, 3), oscontainer.WithDerived(regular("usr/lib/os-release", "NAME=x\n")), oscontainer.WithWorkDir(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	ref, _ := h.push("nameless", img)
	repo := bare(t)
	const lacks = "the image has no PRETTY_NAME or ID in /usr/lib/os-release"
	h.stores = true
	result, err := h.importRef(ref, repo)
	if err != nil || !strings.Contains(strings.Join(result.Notes, "\n"), "warning: "+lacks) {
		t.Errorf("stored: %v, notes %q", err, result.Notes)
	}
	h.stores = false
	if _, err := h.importRef(ref, repo); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), lacks) {
		t.Errorf("to be booted: %v", err)
	}
}
