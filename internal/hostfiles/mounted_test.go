package hostfiles_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/test/tools/need"
)

// TestMountsOfUsers: what root has mounted in a user's directory is entered, what the user has
// mounted there is not: it counts as absent, and as the user's.
func TestMountsOfUsers(t *testing.T) {
	need.Root(t)
	root := t.TempDir()
	mounted := filepath.Join(root, "etc/a dir\\of\na user/mounted") // characters that mountinfo escapes
	must(t, os.MkdirAll(mounted, 0o755), os.Chown(filepath.Dir(mounted), 1500, 1500))
	file := "/etc/a dir\\of\na user/mounted/file"
	mount := func(kind, options string) {
		must(t, unix.Mount("test", mounted, kind, unix.MS_NODEV|unix.MS_NOSUID, options))
		t.Cleanup(func() { must(t, unix.Unmount(mounted, unix.MNT_DETACH)) })
	}
	mount("tmpfs", "mode=0755")
	write(t, filepath.Join(root, file), "root's")
	if f, there, err := hostfiles.Read(root, file); err != nil || !there || string(f.Content) != "root's" {
		t.Errorf("below what root has mounted there is %q (%v, %v)", f.Content, there, err)
	}
	fuse, err := unix.Open("/dev/fuse", unix.O_RDWR, 0)
	must(t, err)
	defer unix.Close(fuse)
	mount("fuse", fmt.Sprintf("fd=%d,rootmode=40000,user_id=1500,group_id=1500,allow_other", fuse)) // who enters it, hangs
	for _, path := range []string{file, filepath.Dir(file)} {
		if _, there, err := hostfiles.Read(root, path); err != nil || there || !hostfiles.OfUsers(root, path) {
			t.Errorf("%q: there %v, %v", path, there, err)
		}
	}
	dir, err := hostfiles.MakeWay(hostfiles.OS{}, root, file, func(string) {})
	if err == nil {
		t.Error("entered", dir.Close())
	} else if !hostfiles.Obstructed(err) {
		t.Error(err)
	}
}
