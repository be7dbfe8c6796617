package ostree_test

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/ostree"
	"machine-pivot/test/tools/need"
)

// TestLinkTooLongForTheFileSystem: a link target that is valid for the kernel but too long
// for XFS is a CorruptError.
func TestLinkTooLongForTheFileSystem(t *testing.T) {
	need.Root(t)
	need.Ostree(t)
	need.Program(t, "mkfs.xfs")
	dir := t.TempDir()
	image, mount := filepath.Join(dir, "image"), filepath.Join(dir, "mount")
	run(t, "truncate", "-s", "400M", image)
	run(t, "mkfs.xfs", "-q", image)
	run(t, "mkdir", mount)
	if out, err := exec.Command("mount", "-o", "loop", image, mount).CombinedOutput(); err != nil {
		need.Lacking(t, "needs to mount XFS: "+string(out))
	}
	t.Cleanup(func() { check(t, unix.Unmount(mount, 0)) })
	path := filepath.Join(mount, "repo")
	run(t, "ostree", "init", "--repo="+path, "--mode=bare")
	r, err := ostree.OpenRepo(path)
	check(t, err)
	for length, good := range map[int]bool{1023: true, 1024: false, 4095: false} {
		f := forged{mode: unix.S_IFLNK | 0o777, target: strings.Repeat("x", length), dirMode: unix.S_IFDIR | 0o755, files: []string{"link"}, metadata: []any{}}
		commit, objects := f.objects(t)
		_, err := importAll(t, r, commit, objects, "ref")
		if _, corrupt := errors.AsType[*ostree.CorruptError](err); good && err != nil || !good && !corrupt {
			t.Errorf("%d bytes: %v", length, err)
		}
	}
}
