package osimage_test

import (
	"fmt"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"machine-pivot/internal/fault"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/registry"
)

// TestNotBootable: layers with an /etc that libostree could not deploy are refused by name as an invalid image.
func TestNotBootable(t *testing.T) {
	h := newHost(t, registry.Options{})
	o := newOSTree(t)
	for n, c := range []struct {
		name   string
		layers [][]entry
		want   string
	}{
		{"etc a file", [][]entry{{gone("etc")}, {regular("etc", "x")}}, "/usr/etc, or /etc of a layer, is a file or a link"},
		{"usr/etc a file", [][]entry{{gone("etc")}, {regular("usr/etc", "x")}}, "/usr/etc, or /etc of a layer, is a file or a link"},
		{"etc a link", [][]entry{{gone("etc")}, {symlink("etc", "share/etc")}}, "/usr/etc, or /etc of a layer, is a file or a link"},
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
			h.refuses(fmt.Sprintf("bootable-%d", n), img, fault.BadInput, c.want)
		})
	}
}

// TestBootFiles: an image of any format is refused by name if libostree could not make its boot entry, or would copy a
// symbolic link or an empty file to /boot. It is accepted with any kernel and initramfs that have content.
func TestBootFiles(t *testing.T) {
	h := newHost(t, registry.Options{})
	const modules = "usr/lib/modules/6.1.0/"
	old := "usr/lib/ostree-boot/%s-" + strings.Repeat("0a", 32)
	isLink := func(name string) string { return "/" + modules + name + " is a symbolic link" }
	isEmpty := func(name string) string { return "/" + modules + name + " is empty" }
	for n, c := range []struct {
		name   string
		change func(o *osTree)
		want   string // "" if the image is accepted
	}{
		{"a kernel outside of the image", func(o *osTree) { o.link(modules+"vmlinuz", "/boot/vmlinuz") }, isLink("vmlinuz")},
		{"a kernel elsewhere in the image", func(o *osTree) {
			o.link(modules+"vmlinuz", "../../kernels/1")
			o.write("usr/lib/kernels/1", "kernel")
		}, isLink("vmlinuz")},
		{"an initramfs outside of the image", func(o *osTree) { o.link(modules+"initramfs.img", "/boot/initramfs.img") }, isLink("initramfs.img")},
		{"a device tree outside of its directory", func(o *osTree) { o.link(modules+"dtb/a.dtb", "../vmlinuz") }, isLink("dtb/a.dtb")},
		{"an old kernel that is a link", func(o *osTree) {
			o.remove(modules + "vmlinuz")
			o.link(fmt.Sprintf(old, "vmlinuz-1"), "vmlinuz")
		}, "is a symbolic link, to vmlinuz"},
		{"no kernel", func(o *osTree) { o.remove(modules + "vmlinuz") }, "the image has no kernel"},
		{"two kernels", func(o *osTree) { o.write("usr/lib/modules/6.2.0/vmlinuz", "kernel") }, "2 kernels (6.1.0, 6.2.0)"},
		{"no name", func(o *osTree) { o.write("usr/lib/os-release", "NAME=x\n") }, "no PRETTY_NAME or ID"},
		{"no initramfs, and modules of another kernel", func(o *osTree) {
			o.remove(modules + "initramfs.img")
			o.write("usr/lib/modules/6.2.0/x.ko", "module")
		}, "the image has no initramfs beside its kernel, /" + modules + "vmlinuz"},
		{"no initramfs in the old place", func(o *osTree) {
			o.remove("usr/lib/modules")
			o.write(fmt.Sprintf(old, "vmlinuz-1"), "kernel")
		}, "the image has no initramfs beside its kernel, /usr/lib/ostree-boot/vmlinuz-1"},
		{"an empty kernel", func(o *osTree) { o.write(modules+"vmlinuz", "") }, isEmpty("vmlinuz")},
		{"an empty initramfs", func(o *osTree) { o.write(modules+"initramfs.img", "") }, isEmpty("initramfs.img")},
		{"an empty device tree", func(o *osTree) { o.write(modules+"devicetree", "") }, isEmpty("devicetree")},
		{"an empty initramfs in the old place", func(o *osTree) {
			o.remove("usr/lib/modules")
			o.write(fmt.Sprintf(old, "vmlinuz-1"), "kernel")
			o.write(fmt.Sprintf(old, "initramfs-1.img"), "")
		}, "is empty"},
		{"an empty second initramfs, which libostree does not take", func(o *osTree) { o.write(modules+"initramfs", "") }, ""},
		{"an empty file among device trees", func(o *osTree) { o.write(modules+"dtb/a.dtb", "") }, ""},
		{"a link among device trees", func(o *osTree) {
			o.write(modules+"dtb/a.dtb", "tree")
			o.link(modules+"dtb/more/b.dtb", "../a.dtb")
		}, ""},
		{"an initramfs in the old place", func(o *osTree) {
			o.remove(modules + "initramfs.img")
			o.write(fmt.Sprintf(old, "vmlinuz-1"), "kernel")
			o.write(fmt.Sprintf(old, "initramfs-1.img"), "initramfs")
		}, ""},
		{"a kernel in the old place", func(o *osTree) {
			o.remove("usr/lib/modules")
			o.write(fmt.Sprintf(old, "vmlinuz-1"), "kernel")
			o.write(fmt.Sprintf(old, "initramfs-1.img"), "initramfs")
		}, ""},
	} {
		for format, pack := range map[string]func(o *osTree) v1.Image{
			"native": func(o *osTree) v1.Image { return o.encapsulated() },
			"legacy": func(o *osTree) v1.Image { return legacyImage(o.t, o) },
			"plain":  func(o *osTree) v1.Image { return plainImage(o.t, o, 3) },
			"layered": func(o *osTree) v1.Image {
				return derivedFrom(o.t, o.encapsulated(), []entry{regular("usr/share/x", "x")})
			},
		} {
			t.Run(c.name+", "+format, func(t *testing.T) {
				sample.Short(t, 8)
				h.t = t
				o := newOSTree(t)
				c.change(o)
				o.odd = true
				name, img := fmt.Sprintf("bootfiles-%d-%s", n, format), pack(o)
				if c.want != "" {
					h.refuses(name, img, fault.Refused, c.want)
					return
				}
				h.takes(name, img, bare(t))
			})
		}
	}
}

// TestStoredNotBootable: an image that would not boot can be stored, with a warning, and is refused where it is
// to boot, also if it is stored already.
func TestStoredNotBootable(t *testing.T) {
	h := newHost(t, registry.Options{})
	for name, c := range map[string]struct {
		layer entry
		lacks string
	}{
		"nameless":          {regular("usr/lib/os-release", "NAME=x\n"), "the image has no PRETTY_NAME or ID in /usr/lib/os-release"},
		"without-initramfs": {gone("usr/lib/modules/6.1.0/initramfs.img"), "the image has no initramfs"},
		"empty-initramfs":   {regular("usr/lib/modules/6.1.0/initramfs.img", ""), "initramfs.img is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			h.t = t
			img, err := oscontainer.Derive(plainImage(t, newOSTree(t), 3), oscontainer.WithDerived(c.layer), oscontainer.WithWorkDir(t.TempDir()))
			if err != nil {
				t.Fatal(err)
			}
			ref, _ := h.push(name, img)
			repo := bare(t)
			h.stores = true
			result, err := h.importRef(ref, repo)
			if notes := strings.Join(result.Notes, "\n"); err != nil || !strings.Contains(notes, "warning: ") || !strings.Contains(notes, c.lacks) {
				t.Errorf("stored: %v, notes %q", err, result.Notes)
			}
			h.stores = false
			if _, err := h.importRef(ref, repo); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), c.lacks) {
				t.Errorf("to be booted: %v", err)
			}
		})
	}
}
