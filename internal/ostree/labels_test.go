package ostree_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/guard"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
	"machine-pivot/test/tools/need"
)

// TestLabels: an object with an SELinux label that cannot be stored is refused before it is written, and the error
// names the label. This includes directories, although their label is set only when they are checked out. Each label is
// checked once.
func TestLabels(t *testing.T) {
	need.Ostree(t)
	const known = "system_u:object_r:known_t:s0"
	for _, labelled := range []string{"usr", "usr/file", "usr/link"} {
		const unknown = "system_u:object_r:unknown_t:s0"
		tree := filepath.Join(t.TempDir(), "tree")
		write(t, filepath.Join(tree, "usr/file"), "content")
		check(t, os.Symlink("file", filepath.Join(tree, "usr/link")))
		for _, name := range []string{"", "usr", "usr/file", "usr/link"} {
			label := known
			if name == labelled {
				label = unknown
			}
			check(t, hostfiles.SetLabel(filepath.Join(tree, name), label))
		}
		repo := filepath.Join(t.TempDir(), "archive")
		run(t, "ostree", "init", "--repo="+repo, "--mode=archive")
		commit, err := ostree.ParseChecksum(run(t, "ostree", "commit", "--repo="+repo, "-b", "os", "--tree=dir="+tree))
		check(t, err)
		s, r := &source{t: t, repo: repo, commit: commit}, newRepo(t)
		asked := map[string]int{}
		refused := true
		r.CheckLabels(func(label string) error {
			asked[label]++
			if label == unknown && refused {
				return hostfiles.ErrUnknownLabel
			}
			return nil
		})
		_, err = importAll(t, r, commit, s.objects(), "os")
		wrong, ok := errors.AsType[*ostree.LabelError](err)
		if !ok || wrong.Label != unknown || !errors.Is(err, hostfiles.ErrUnknownLabel) {
			t.Errorf("%s: error %v", labelled, err)
		}
		nothingLeft(t, r)
		refused = false
		clear(asked)
		_, err = importAll(t, r, commit, s.objects(), "os")
		check(t, err)
		if asked[known] != 1 || asked[unknown] != 1 {
			t.Errorf("%s: asked %v", labelled, asked)
		}
		file, err := r.ReadFile(commit, "usr/file")
		if string(file) != "content" || err != nil {
			t.Errorf("usr/file holds %q, %v", file, err)
		}
		for _, name := range []string{"usr/none", "no/file"} {
			if _, err := r.ReadFile(commit, name); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestHasPath: HasPath finds files, links and directories, and does not follow links.
func TestHasPath(t *testing.T) {
	dir, r := t.TempDir(), newRepo(t)
	write(t, filepath.Join(dir, "usr/bin/file"), "content")
	check(t, os.Symlink("bin", filepath.Join(dir, "usr/sbin")))
	run(t, "ostree", "commit", "--repo="+r.Path(), "-b", "x", "--tree=dir="+dir)
	commit, err := r.ResolveRef("x")
	check(t, err)
	for name, want := range map[string]bool{
		"usr/bin/file": true, "usr/bin": true, "usr/sbin": true, "usr/none": false, "usr/sbin/file": false, "none/file": false, "usr/bin/file/x": false,
	} {
		if has, err := r.HasPath(commit, name); has != want || err != nil {
			t.Errorf("%s: %v, %v", name, has, err)
		}
	}
}

// TestReadFileOfALink: a link in a commit is not followed on this machine.
func TestReadFileOfALink(t *testing.T) {
	dir, r := t.TempDir(), newRepo(t)
	check(t, os.Mkdir(filepath.Join(dir, "usr"), 0o755))
	check(t, os.Symlink("/etc/passwd", filepath.Join(dir, "usr/link")))
	run(t, "ostree", "commit", "--repo="+r.Path(), "-b", "x", "--tree=dir="+dir)
	commit, err := r.ResolveRef("x")
	check(t, err)
	if data, err := r.ReadFile(commit, "usr/link"); !errors.Is(err, unix.ELOOP) {
		t.Errorf("%q, %v", data, err)
	}
}

// TestReadFileIsBounded: a file of an image that is read into memory has a limit.
func TestReadFileIsBounded(t *testing.T) {
	dir, r := t.TempDir(), newRepo(t)
	check(t, os.WriteFile(filepath.Join(dir, "large"), nil, 0o644))
	check(t, os.Truncate(filepath.Join(dir, "large"), 16<<20+1))
	run(t, "ostree", "commit", "--repo="+r.Path(), "-b", "x", "--tree=dir="+dir)
	commit, err := r.ResolveRef("x")
	check(t, err)
	if data, err := r.ReadFile(commit, "large"); !errors.Is(err, guard.ErrTooMuch) {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}

// TestLabelsInherited: if the kernel does not label new files, all files of an import get the
// label of the repository, except file objects.
func TestLabelsInherited(t *testing.T) {
	s, r := newSource(t), newRepo(t)
	const label = "system_u:object_r:usr_t:s0"
	for _, dir := range []string{"objects", "tmp", "refs/heads"} {
		check(t, hostfiles.SetLabel(filepath.Join(r.Path(), dir), label))
	}
	_, err := importAll(t, r, s.commit, s.objects(), "pivot/x/y")
	check(t, err)
	for _, below := range []string{"objects", "refs/heads"} {
		check(t, filepath.WalkDir(filepath.Join(r.Path(), below), func(path string, d fs.DirEntry, err error) error {
			want := label
			if filepath.Ext(path) == ".file" {
				want = "" // as in the commit
			}
			if got, lerr := hostfiles.LabelOf(path); got != want || lerr != nil {
				t.Errorf("%s has the label %q, want %q (%v)", path, got, want, lerr)
			}
			return err
		}))
	}
	run(t, "ostree", "fsck", "--repo="+r.Path())
}

// TestMoveLabelKeepsWhatAnotherHas: an object that another one has become by its new label stays,
// although its own use gets a third label. Without such another one it is changed in place.
func TestMoveLabelKeepsWhatAnotherHas(t *testing.T) {
	const content = "content"
	label := func(kind string) string { return "system_u:object_r:" + kind + ":s0" }
	for _, shared := range []bool{false, true} {
		im := begin(t, newRepo(t))
		add := func(kind string) ostree.Checksum {
			xattrs, err := ostree.EncodeXattrs(map[string][]byte{hostfiles.LabelAttribute: []byte(label(kind) + "\x00")})
			check(t, err)
			c, err := im.AddNewFile(t.Context(), ostree.FileInfo{Mode: unix.S_IFREG | 0o644, Size: uint64(len(content)), Xattrs: xattrs}, strings.NewReader(content))
			check(t, err)
			return c
		}
		a, b := add("a_t"), add("b_t")
		if shared {
			made, err := im.MoveLabel(t.Context(), a, label("b_t"))
			check(t, err)
			if made != b {
				t.Fatalf("relabelled: %s, want %s", made, b)
			}
		}
		c, err := im.MoveLabel(t.Context(), b, label("c_t"))
		check(t, err)
		if stat, err := im.StatFile(c); err != nil || stat.Label != label("c_t") {
			t.Errorf("the new object: %+v, %v", stat, err)
		}
		if stat, err := im.StatFile(b); (err == nil) != shared || shared && stat.Label != label("b_t") {
			t.Errorf("the object with the former label, which another one became: %v: %+v, %v", shared, stat, err)
		}
		check(t, im.Discard())
	}
}
