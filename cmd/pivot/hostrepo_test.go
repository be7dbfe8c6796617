package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/hostdir"
)

// TestImportIntoReadOnlySysroot: an image is imported into the host's repository, by default and
// by its name, although /sysroot is mounted read-only; the host's mount stays read-only.
func TestImportIntoReadOnlySysroot(t *testing.T) {
	need.Root(t)
	need.Ostree(t)
	h := hostdir.New(t)
	sysroot := h.Physical()
	if err := unix.Mount(sysroot, sysroot, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(sysroot, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mount("", sysroot, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "repo")
	repo := filepath.Join(sysroot, "ostree/repo")
	if err := os.Symlink(repo, link); err != nil {
		t.Fatal(err)
	}
	for name, flags := range map[string][]string{"by default": nil, "by name": {"--repo", repo}, "by another name": {"--repo", link}} {
		out, err := exec.Command("pivot", append([]string{"image", "import", h.Image, "--root", h.Root}, flags...)...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), " objects new, ") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	if err := os.WriteFile(filepath.Join(repo, "x"), nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Errorf("the host's mount became writable: %v", err)
	}
}
