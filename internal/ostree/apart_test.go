package ostree_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/ostree"
	"machine-pivot/internal/ostree/gvariant"
	"machine-pivot/test/tools/sample"
)

// fileObject is a file object with separate metadata and content, as in the layers of
// ostree-native containers.
type fileObject struct {
	info    ostree.FileInfo
	content []byte
}

// bare pulls the source's commit into a new bare repository with libostree.
func (s *source) bare() (repo string) {
	s.t.Helper()
	repo = filepath.Join(s.t.TempDir(), "bare")
	run(s.t, "ostree", "init", "--repo="+repo, "--mode=bare")
	run(s.t, "ostree", "pull-local", "--repo="+repo, s.repo, "os")
	return repo
}

// readFileObjects reads the file objects of a bare repository with lstat and getxattr.
func readFileObjects(t testing.TB, repo string) map[ostree.Checksum]fileObject {
	t.Helper()
	all := map[ostree.Checksum]fileObject{}
	root := filepath.Join(repo, "objects")
	check(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".file") {
			return err
		}
		name, _, err := ostree.ParseLoosePath(strings.TrimPrefix(path, root+"/"))
		check(t, err)
		all[name.Checksum] = readFile(t, path)
		return nil
	}))
	return all
}

func readFile(t testing.TB, path string) (a fileObject) {
	t.Helper()
	info, err := os.Lstat(path)
	check(t, err)
	st := info.Sys().(*syscall.Stat_t)
	a.info = ostree.FileInfo{UID: st.Uid, GID: st.Gid, Mode: st.Mode, Xattrs: xattrs(t, path)}
	if info.Mode().IsRegular() {
		a.content, err = os.ReadFile(path)
		a.info.Size = uint64(len(a.content))
	} else {
		a.info.Target, err = os.Readlink(path)
	}
	check(t, err)
	return a
}

// xattrs returns a file's extended attributes as a GVariant.
func xattrs(t testing.TB, path string) []byte {
	t.Helper()
	list, value := make([]byte, 4096), make([]byte, 4096)
	n, err := unix.Llistxattr(path, list)
	check(t, err)
	names := strings.Split(strings.TrimRight(string(list[:n]), "\x00"), "\x00")
	slices.Sort(names)
	all := []any{}
	for _, name := range names {
		if name != "" {
			n, err := unix.Lgetxattr(path, name, value)
			check(t, err)
			all = append(all, gvariant.Tuple{append([]byte(name), 0), slices.Clone(value[:n])})
		}
	}
	data, err := gvariant.Encode("a(ayay)", all)
	check(t, err)
	return data
}

func begin(t testing.TB, r *ostree.Repo) *ostree.Import {
	t.Helper()
	im, err := r.BeginImport(t.Context())
	check(t, err)
	return im
}

func TestFilesApart(t *testing.T) {
	s, r := newSource(t), newRepo(t)
	bare := s.bare()
	im := begin(t, r)
	for c, a := range readFileObjects(t, bare) {
		check(t, im.AddFile(t.Context(), c, a.info, bytes.NewReader(a.content)))
	}
	metadata := s.objects()
	for path := range metadata {
		if strings.HasSuffix(path, ".filez") {
			delete(metadata, path)
		}
	}
	check(t, add(t, im, metadata))
	check(t, im.Finish(t.Context(), ostree.Root{Commit: s.commit, Refs: []string{"os"}}))
	check(t, im.Discard())
	run(t, "ostree", "fsck", "--repo="+r.Path())
	list := func(repo string) string { return run(t, "ostree", "ls", "--repo="+repo, "-RXC", "os") }
	if got, want := list(r.Path()), list(bare); got != want {
		t.Errorf("tree is\n%s\nwant\n%s", got, want)
	}
}

func TestFilesApartDamaged(t *testing.T) {
	s := newSource(t)
	for c, a := range readFileObjects(t, s.bare()) {
		for what, change := range map[string]func(a *fileObject){
			"owner":        func(a *fileObject) { a.info.UID++ },
			"mode":         func(a *fileObject) { a.info.Mode ^= 1 },
			"a device":     func(a *fileObject) { a.info.Mode = unix.S_IFCHR | 0o644 },
			"xattrs":       func(a *fileObject) { a.info.Xattrs = []byte("user.x\x00y\x07\x09") },
			"bad xattrs":   func(a *fileObject) { a.info.Xattrs = []byte{0xff} },
			"target":       func(a *fileObject) { a.info.Target += "x" },
			"longer":       func(a *fileObject) { a.content = append(slices.Clone(a.content), 'x') },
			"longer, says": func(a *fileObject) { a.content = append(slices.Clone(a.content), 'x'); a.info.Size++ },
			"shorter": func(a *fileObject) {
				a.content = a.content[:max(0, len(a.content)-1)]
				a.info.Size += 1 - min(1, a.info.Size)
			},
		} {
			if testing.Short() && !sample.Picks(c.String()+what, 4) {
				continue
			}
			changed := a
			change(&changed)
			r := newRepo(t)
			im := begin(t, r)
			err := im.AddFile(t.Context(), c, changed.info, bytes.NewReader(changed.content))
			if _, ok := errors.AsType[*ostree.CorruptError](err); !ok {
				t.Errorf("%s, %s: error %v, want a CorruptError", c, what, err)
			}
			check(t, im.Discard())
			nothingLeft(t, r)
		}
	}
}

// TestObjectSet makes the commit that ostree-ext makes of the same objects, and checks
// it with libostree.
func TestObjectSet(t *testing.T) {
	s, r := newSource(t), newRepo(t)
	im := begin(t, r)
	var set []ostree.Checksum
	for c, a := range readFileObjects(t, s.bare()) {
		check(t, im.AddFile(t.Context(), c, a.info, bytes.NewReader(a.content)))
		set = append(set, c)
	}
	commit, err := im.AddObjectSet(t.Context(), set)
	check(t, err)
	check(t, im.Finish(t.Context(), ostree.Root{Commit: commit, Refs: []string{"set"}}))
	check(t, im.Discard())
	run(t, "ostree", "fsck", "--repo="+r.Path())
	check(t, r.HasObjectSet(commit))
	for _, c := range set {
		line := run(t, "ostree", "ls", "--repo="+r.Path(), "-C", "set", "/"+c.String())
		if strings.Count(line, c.String()) != 2 {
			t.Errorf("%s is listed as %s", c, line)
		}
	}
	if got := run(t, "ostree", "show", "--repo="+r.Path(), "set"); !strings.Contains(got, "1970-01-01 00:00:00") {
		t.Errorf("its time: %s", got)
	}
	check(t, os.Remove(filepath.Join(r.Path(), "objects", set[0].String()[:2], set[0].String()[2:]+".file")))
	if err := r.HasObjectSet(commit); err == nil || !strings.Contains(err.Error(), set[0].String()) {
		t.Errorf("with an object missing: %v", err)
	}
}

// TestMadeTree makes a copy of a tree without one of its files.
func TestMadeTree(t *testing.T) {
	dir, r := t.TempDir(), newRepo(t)
	for name, content := range map[string]string{"usr/etc/hostname": "", "usr/etc/keep": "", "usr/x": ""} {
		write(t, filepath.Join(dir, name), content)
	}
	run(t, "ostree", "commit", "--repo="+r.Path(), "-b", "base", "--tree=dir="+dir)
	base, err := r.ResolveRef("base")
	check(t, err)
	info, err := r.LoadCommit(base)
	check(t, err)
	im := begin(t, r)
	var without func(tree ostree.Checksum, path ...string) ostree.Checksum
	without = func(tree ostree.Checksum, path ...string) ostree.Checksum {
		d, err := im.ReadDirectory(tree)
		check(t, err)
		if len(path) == 1 {
			delete(d.Files, path[0])
		} else {
			below := d.Dirs[path[0]]
			below.Tree = without(below.Tree, path[1:]...)
			d.Dirs[path[0]] = below
		}
		made, err := im.AddDirectory(t.Context(), d)
		check(t, err)
		return made
	}
	if same := without(info.RootTree, "nothing"); same != info.RootTree {
		t.Errorf("the same tree is %s, want %s", same, info.RootTree)
	}
	attributes, err := im.ReadDirInfo(info.RootMeta)
	check(t, err)
	if same, err := im.AddDirInfo(t.Context(), attributes); err != nil || same != info.RootMeta {
		t.Errorf("the same attributes are %s, %v, want %s", same, err, info.RootMeta)
	}
	root := without(info.RootTree, "usr", "etc", "hostname")
	merged, err := im.AddCommit(t.Context(), ostree.NewCommit{
		Parent: base, RootTree: root, RootMeta: info.RootMeta,
		Timestamp: time.Unix(1234567890, 0), Metadata: [][2]string{{"one", "1"}, {"two", strings.Repeat("2", 300)}},
	})
	check(t, err)
	check(t, im.Finish(t.Context(), ostree.Root{Commit: merged, Refs: []string{"merged"}}))
	check(t, im.Discard())
	run(t, "ostree", "fsck", "--repo="+r.Path())
	if got := run(t, "ostree", "diff", "--repo="+r.Path(), "base", "merged"); got != "D    /usr/etc/hostname" {
		t.Errorf("diff is %q", got)
	}
	if got := run(t, "ostree", "show", "--repo="+r.Path(), "--print-metadata-key=two", "merged"); got != "'"+strings.Repeat("2", 300)+"'" {
		t.Errorf("metadata is %s", got)
	}
	if got := run(t, "ostree", "rev-parse", "--repo="+r.Path(), "merged^"); got != base.String() {
		t.Errorf("parent is %s, want %s", got, base)
	}
}
