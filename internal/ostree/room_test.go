package ostree_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/ostree"
	"machine-pivot/test/tools/need"
)

// TestRoom: the files that an interrupted import has left count as room, those of a running one do not.
func TestRoom(t *testing.T) {
	s, r := newSource(t), newRepo(t)
	im := begin(t, r)
	check(t, add(t, im, s.objects()))
	check(t, im.Close())
	run(t, "ostree", "config", "--repo="+r.Path(), "set", "core.min-free-space-size", "900000TB")
	r, err := ostree.OpenRepo(r.Path())
	check(t, err)

	left, want := staged(t, r), int64(0)
	for _, path := range left {
		info, err := os.Stat(path)
		check(t, err)
		want += info.Size()
	}
	if room, err := r.Room(); err != nil || room != want || want == 0 {
		t.Errorf("room for %d bytes, %v; want the %d that were left", room, err, want)
	}
	if now := staged(t, r); len(now) != len(left) {
		t.Errorf("%d files are left after the look, %d before", len(now), len(left))
	}
	running, err := os.Open(filepath.Dir(filepath.Dir(left[0])))
	check(t, err)
	check(t, unix.Flock(int(running.Fd()), unix.LOCK_EX)) // as an import that uses them holds it
	if room, err := r.Room(); err != nil || room != 0 {
		t.Errorf("room for %d bytes, %v; want none while an import runs", room, err)
	}
	check(t, running.Close())
	if room, err := r.Room(); err != nil || room != want {
		t.Errorf("room for %d bytes, %v; want %d when it has ended", room, err, want)
	}
	check(t, os.RemoveAll(filepath.Join(r.Path(), "tmp")))
	if room, err := r.Room(); err != nil || room != 0 {
		t.Errorf("room for %d bytes, %v; want none", room, err)
	}
}

// TestRoomOfLeftovers: the files that an import of an earlier boot has left are room for the import that removes
// them, as Room says before.
func TestRoomOfLeftovers(t *testing.T) {
	need.Root(t)
	s, dir := newSource(t), t.TempDir()
	check(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=100m"))
	defer func() { check(t, unix.Unmount(dir, 0)) }()
	repo := filepath.Join(dir, "repo")
	run(t, "ostree", "init", "--repo="+repo, "--mode=bare")
	left := filepath.Join(repo, "tmp/pivot-import-00000000-0000-0000-0000-000000000000/aa")
	check(t, os.MkdirAll(left, 0o700))
	check(t, os.WriteFile(filepath.Join(left, "x.file"), make([]byte, 64<<20), 0o600))
	var st unix.Statfs_t
	check(t, unix.Statfs(repo, &st))
	run(t, "ostree", "config", "--repo="+repo, "set", "core.min-free-space-size", fmt.Sprintf("%dMB", int64(st.Bavail)*st.Bsize>>20-1))
	r, err := ostree.OpenRepo(repo)
	check(t, err)
	if room, err := r.Room(); err != nil || room < 64<<20 {
		t.Errorf("room for %d bytes, %v", room, err)
	}
	_, err = importAll(t, r, s.commit, s.objects(), "os")
	check(t, err)
}

// staged returns the regular files that an interrupted import has left.
func staged(t *testing.T, r *ostree.Repo) (paths []string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(r.Path(), "tmp/pivot-import-*/*/*"))
	check(t, err)
	for _, path := range all {
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() {
			paths = append(paths, path)
		}
	}
	return paths
}

// TestHasWhole: HasWhole succeeds if no object of the commit is missing and the commit is not
// marked as partial, regardless of refs.
func TestHasWhole(t *testing.T) {
	s, r := newSource(t), newRepo(t)
	missing := func(what string) {
		t.Helper()
		if err := r.HasWhole(t.Context(), s.commit); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("error %v, want one about %s", err, what)
		}
	}
	missing(s.commit.String())
	_, err := importAll(t, r, s.commit, s.objects(), "os")
	check(t, err)
	check(t, r.HasWhole(t.Context(), s.commit))

	mark := filepath.Join(r.Path(), "state", s.commit.String()+".commitpartial")
	check(t, os.WriteFile(mark, nil, 0o644))
	missing("partial")
	check(t, os.Remove(mark))

	for _, pattern := range []string{"*.file", "*.dirtree", "*.dirmeta"} {
		found, err := filepath.Glob(filepath.Join(r.Path(), "objects/*", pattern))
		check(t, err)
		check(t, os.Rename(found[0], found[0]+"-away"))
		missing(filepath.Base(filepath.Dir(found[0])) + strings.TrimSuffix(filepath.Base(found[0]), filepath.Ext(found[0])))
		check(t, os.Rename(found[0]+"-away", found[0]))
	}
	check(t, r.HasWhole(t.Context(), s.commit))
}
