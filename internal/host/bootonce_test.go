package host_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/host"
	"machine-pivot/internal/ostree"
	"machine-pivot/test/tools/need"
)

const loaderFeatures = "/sys/firmware/efi/efivars/LoaderFeatures-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"

// Output of grub2-mkconfig and bootupd, reduced to the selection of entries.
const (
	grubMade   = "load_env\nif [ \"${next_entry}\" ] ; then\n   set default=\"${next_entry}\"\n   save_env next_entry\nfi\ninsmod blscfg\nblscfg\n"
	grubStatic = "load_env\nblscfg\n"
)

// TestOneShot (P59): which boot loaders can start an entry once, and the commands for it.
func TestOneShot(t *testing.T) {
	for name, c := range map[string]struct {
		files       map[string]string
		set, forget string
		why         string
	}{
		"a loader of the boot loader interface": {
			files: map[string]string{loaderFeatures: "\x06\x00\x00\x00\x18\x00\x00\x00\x00\x00\x00\x00"},
			set:   "bootctl set-oneshot ostree-2.conf", forget: "bootctl set-oneshot ",
		},
		"one that cannot": {files: map[string]string{loaderFeatures: "\x06\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00"}, why: "no boot loader is known"},
		"GRUB of Fedora": {
			files: map[string]string{"/boot/grub2/grub.cfg": grubMade, "/boot/grub2/grubenv": "x"},
			set:   "grub2-editenv ROOT/boot/grub2/grubenv set next_entry=ostree-2", forget: "grub2-editenv ROOT/boot/grub2/grubenv unset next_entry",
		},
		"GRUB of Debian": {
			files: map[string]string{"/boot/grub/grub.cfg": grubMade, "/boot/grub/grubenv": "x"},
			set:   "grub-editenv ROOT/boot/grub/grubenv set next_entry=ostree-2", forget: "grub-editenv ROOT/boot/grub/grubenv unset next_entry",
		},
		"GRUB of Fedora CoreOS":    {files: map[string]string{"/boot/grub2/grub.cfg": grubStatic, "/boot/grub2/grubenv": "x"}, why: `no "save_env next_entry"`},
		"GRUB with entries inside": {files: map[string]string{"/boot/grub2/grub.cfg": "menuentry\nsave_env next_entry\n"}, why: `no "blscfg"`},
		"GRUB without environment": {files: map[string]string{"/boot/grub2/grub.cfg": grubMade}, why: "cannot look at GRUB's environment"},
		"another or none":          {why: "no boot loader is known"},
		"a variable that is empty": {files: map[string]string{loaderFeatures: ""}, why: "no boot loader is known"},
	} {
		t.Run(name, func(t *testing.T) {
			h := machine(t, c.files)
			h.Root = onDisk(t, h.Root)
			var asked []string
			h.Run = func(_ context.Context, argv ...string) ([]byte, error) {
				asked = append(asked, strings.ReplaceAll(strings.Join(argv, " "), h.Root, "ROOT"))
				return nil, nil
			}
			_, err := h.OneShot()
			if c.why != "" {
				if err == nil || !strings.Contains(err.Error(), c.why) || h.BootOnce(t.Context(), ostree.Deployment{}) == nil || h.ForgetOnce(t.Context()) == nil {
					t.Errorf("error %v, want %q", err, c.why)
				}
				return
			}
			d := ostree.Deployment{Entry: ostree.BootEntry{File: "ostree-2.conf"}}
			if err := errors.Join(err, h.BootOnce(t.Context(), d), h.ForgetOnce(t.Context())); err != nil || !slices.Equal(asked, []string{c.set, c.forget}) {
				t.Errorf("asked %q, %v", asked, err)
			}
		})
	}
}

// onDisk copies a directory to a file system that GRUB could write to. It skips the test if
// there is none.
func onDisk(t *testing.T, dir string) string {
	t.Helper()
	copied, err := os.MkdirTemp("/var/tmp", "pivot-once-*")
	if err != nil {
		need.Lacking(t, "needs a directory on a disk: "+err.Error())
	}
	t.Cleanup(func() { _ = os.RemoveAll(copied) })
	copied = filepath.Join(copied, "root")
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return copied
}

// TestUptime: it is the kernel's uptime and advances.
func TestUptime(t *testing.T) {
	h := host.New("/")
	first, err := h.Uptime()
	second, err2 := h.Uptime()
	if errors.Join(err, err2) != nil || first <= 0 || second < first {
		t.Errorf("%v, then %v: %v", first, second, errors.Join(err, err2))
	}
}

// TestUnitState: it is systemd's state.
func TestUnitState(t *testing.T) {
	h := machine(t, nil)
	h.Run = func(_ context.Context, argv ...string) ([]byte, error) {
		if want := "systemctl show --property=ActiveState --value -- a.service"; strings.Join(argv, " ") != want {
			t.Errorf("asked %q", argv)
		}
		return []byte("failed\n"), nil
	}
	if state, err := h.UnitState(t.Context(), "a.service"); err != nil || state != "failed" {
		t.Errorf("%q, %v", state, err)
	}
}
