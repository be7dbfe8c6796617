package hostfiles_test

import (
	"os"
	"path/filepath"
	"testing"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/test/tools/need"
)

// TestMetBy: the owner of a link counts only if another one than root is requested; that of anything else counts always.
func TestMetBy(t *testing.T) {
	link, file := hostfiles.NewLink("/etc/a", "b"), hostfiles.NewFile("/etc/a", 0o644, nil)
	for _, c := range []struct {
		want, have hostfiles.File
		met        bool
	}{
		{link, link, true},
		{link, owned(link, 1, 2), true},
		{owned(link, 1, 0), link, false},
		{owned(link, 0, 2), link, false},
		{owned(link, 1, 0), owned(link, 1, 0), true},
		{owned(link, 0, 2), owned(link, 0, 2), true},
		{link, hostfiles.NewLink("/etc/a", "c"), false},
		{file, owned(file, 1, 0), false},
		{file, owned(file, 0, 2), false},
		{owned(file, 1, 2), owned(file, 1, 2), true},
	} {
		if got := c.want.MetBy(c.have.Entry); got != c.met {
			t.Errorf("%s with owner %d:%d for %d:%d: %v", c.have.Entry, c.have.UID, c.have.GID, c.want.UID, c.want.GID, got)
		}
	}
}

// TestLooksAreClosed: looking at entries leaves no file open.
func TestLooksAreClosed(t *testing.T) {
	need.Root(t)
	root := t.TempDir()
	mkdir(t, filepath.Join(root, "etc"))
	must(t, os.Chmod(filepath.Join(root, "etc"), 0o755))
	write(t, filepath.Join(root, "etc/file"), "x")
	open := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		return len(all)
	}
	before := open()
	for range 20 {
		if hostfiles.OfUsers(root, "/etc/file") {
			t.Error("it is a user's")
		}
		if _, there, err := hostfiles.Look(root, "/etc/file"); err != nil || !there {
			t.Error(err)
		}
	}
	if now := open(); now > before {
		t.Errorf("%d files are open, and %d were before", now, before)
	}
}
