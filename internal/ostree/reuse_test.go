package ostree_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
)

// wrong is a change of an object's file.
type wrong struct {
	of     func(info os.FileInfo, n ostree.ObjectName) bool // the objects to which it can happen
	change func(t *testing.T, path string)
	byName bool // seen without the object's header
}

func isFile(info os.FileInfo, n ostree.ObjectName) bool {
	return n.Type == ostree.File && info.Mode().IsRegular()
}
func hasContent(info os.FileInfo, n ostree.ObjectName) bool {
	return info.Mode().IsRegular() && info.Size() > 0
}
func isAny(os.FileInfo, ostree.ObjectName) bool          { return true }
func isMetadata(_ os.FileInfo, n ostree.ObjectName) bool { return n.Type != ostree.File }
func isLink(info os.FileInfo, _ ostree.ObjectName) bool  { return info.Mode()&os.ModeSymlink != 0 }

// kept changes a file and gives it back the time that it had.
func kept(change func(t *testing.T, path string)) func(t *testing.T, path string) {
	return func(t *testing.T, path string) {
		info, err := os.Stat(path)
		check(t, err)
		change(t, path)
		check(t, os.Chtimes(path, time.Time{}, info.ModTime()))
	}
}

func rewritten(with func([]byte) []byte) func(t *testing.T, path string) {
	return func(t *testing.T, path string) {
		data, err := os.ReadFile(path)
		check(t, err)
		check(t, os.WriteFile(path, with(data), 0)) // the same inode, as a deployment's link has it
	}
}

var wrongs = map[string]wrong{
	"changed":          {hasContent, rewritten(func(d []byte) []byte { return flip(d, len(d)/2) }), true},
	"shorter":          {hasContent, rewritten(func(d []byte) []byte { return d[:len(d)/2] }), true},
	"longer":           {isFile, rewritten(func(d []byte) []byte { return append(d, 'x') }), true},
	"emptied at power": {hasContent, kept(rewritten(func([]byte) []byte { return nil })), true},
	"shorter, in time": {func(i os.FileInfo, n ostree.ObjectName) bool { return hasContent(i, n) && isFile(i, n) },
		kept(rewritten(func(d []byte) []byte { return bytes.Clone(d[1:]) })), false},
	"mode":            {isFile, func(t *testing.T, path string) { check(t, os.Chmod(path, 0o601)) }, false},
	"owner":           {isFile, func(t *testing.T, path string) { check(t, os.Chown(path, 77, 77)) }, false},
	"owner of a link": {isLink, func(t *testing.T, path string) { check(t, os.Lchown(path, 77, 77)) }, true},
	"attribute more":  {isFile, func(t *testing.T, path string) { check(t, unix.Setxattr(path, "user.more", []byte("x"), 0)) }, false},
	"capability more": {isFile, func(t *testing.T, path string) {
		check(t, unix.Setxattr(path, "security.capability", []byte("\x01\x00\x00\x02\x00\x40\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), 0))
	}, false},
	"attribute gone": {func(i os.FileInfo, n ostree.ObjectName) bool {
		return isFile(i, n) && i.Size() == int64(len("hello world\n"))
	},
		func(t *testing.T, path string) { check(t, unix.Removexattr(path, "user.aa")) }, false},
	"another target": {isLink, func(t *testing.T, path string) {
		check(t, os.Remove(path))
		check(t, os.Symlink("elsewhere", path))
	}, true},
	"a file in place of a link": {isLink, func(t *testing.T, path string) {
		check(t, os.Remove(path))
		check(t, os.WriteFile(path, []byte("../bin/hello"), 0o777))
	}, true},
	"a link in place of a file": {isFile, func(t *testing.T, path string) {
		check(t, os.Remove(path))
		check(t, os.Symlink("elsewhere", path))
	}, true},
	"a link in place of metadata": {isMetadata, func(t *testing.T, path string) {
		check(t, os.Rename(path, path+".moved"))
		check(t, os.Symlink(path+".moved", path))
	}, true},
	"a pipe": {isAny, func(t *testing.T, path string) {
		check(t, os.Remove(path))
		check(t, unix.Mkfifo(path, 0o644))
	}, true},
	"a device": {isAny, func(t *testing.T, path string) {
		check(t, os.Remove(path))
		check(t, unix.Mknod(path, unix.S_IFCHR|0o644, int(unix.Mkdev(1, 5)))) // without an end
	}, true},
	"a socket": {isAny, func(t *testing.T, path string) {
		check(t, os.Remove(path))
		check(t, unix.Mknod(path, unix.S_IFSOCK|0o644, 0))
	}, true},
}

// TestWrongObjects: an object of the repository that cannot be right counts as missing, and the added one replaces it.
// Who has the old file by a link keeps it. What is right stays the same file.
func TestWrongObjects(t *testing.T) {
	s := newSource(t)
	for what, wrong := range wrongs {
		t.Run(what, func(t *testing.T) {
			r, deployed := newRepo(t), t.TempDir()
			_, err := importAll(t, r, s.commit, s.objects(), "os")
			check(t, err)
			damaged := map[ostree.ObjectName]os.FileInfo{}
			for path := range s.objects() {
				n, _, err := ostree.ParseLoosePath(path)
				check(t, err)
				at := filepath.Join(r.Path(), "objects", strings.Replace(path, ".filez", ".file", 1))
				info, err := os.Lstat(at)
				check(t, err)
				if !wrong.of(info, n) || n.Type == ostree.CommitMeta {
					continue
				}
				wrong.change(t, at)
				check(t, os.Link(at, filepath.Join(deployed, n.String())))
				damaged[n], err = os.Lstat(at)
				check(t, err)
			}
			if whole := r.HasWhole(t.Context(), s.commit); wrong.byName && (fault.HintOf(whole) == "" || !strings.Contains(whole.Error(), r.Path())) {
				t.Errorf("the commit is whole: %v", whole)
			}
			stats, err := importAll(t, r, s.commit, s.objects(), "again")
			check(t, err)
			if stats.ObjectsNew != len(damaged) || len(stats.Replaced) != len(damaged) || len(damaged) == 0 {
				t.Errorf("%+v, want these replaced: %v", stats, damaged)
			}
			for n, was := range damaged {
				if has, err := os.Lstat(filepath.Join(deployed, n.String())); err != nil || !os.SameFile(has, was) || has.Size() != was.Size() || has.Mode() != was.Mode() {
					t.Errorf("%s: the file that others have was touched: %v, %v", n, has, err)
				}
			}
			run(t, "ostree", "fsck", "--repo="+r.Path())
		})
	}
}

// TestCopiedObjects: objects of which only the time is another one, as a copy of the repository has them, are used.
func TestCopiedObjects(t *testing.T) {
	s, r := newSource(t), newRepo(t)
	_, err := importAll(t, r, s.commit, s.objects(), "os")
	check(t, err)
	run(t, "find", filepath.Join(r.Path(), "objects"), "-type", "f", "-exec", "touch", "{}", "+")
	check(t, r.HasWhole(t.Context(), s.commit))
	if stats, err := importAll(t, r, s.commit, s.objects(), "again"); err != nil || stats.ObjectsNew != 0 || len(stats.Replaced) != 0 {
		t.Errorf("%+v, %v", stats, err)
	}
}

// TestWrongBehindAnInterruption: a right object that an interrupted import has left replaces the wrong one.
func TestWrongBehindAnInterruption(t *testing.T) {
	s, r := newSource(t), newRepo(t)
	_, err := importAll(t, r, s.commit, s.objects(), "os")
	check(t, err)
	for path := range s.objects() {
		if at, is := strings.CutSuffix(filepath.Join(r.Path(), "objects", path), ".filez"); is {
			if info, err := os.Lstat(at + ".file"); err == nil && info.Mode().IsRegular() {
				check(t, os.Truncate(at+".file", 1))
			}
		}
	}
	im := begin(t, r)
	check(t, add(t, im, s.objects()))
	check(t, im.Close())
	_, err = importAll(t, r, s.commit, s.objects(), "again")
	check(t, err)
	run(t, "ostree", "fsck", "--repo="+r.Path())
}

// TestDirectoryInPlaceOfObject: nobody but the administrator can tell what a directory in the place of an object holds.
// It is not removed, and the hint names it. So it is for an object that cannot be replaced, and for a file in the place
// of a directory of objects.
func TestDirectoryInPlaceOfObject(t *testing.T) {
	s := newSource(t)
	for path := range s.objects() {
		object := strings.Replace(path, ".filez", ".file", 1)
		for what, put := range map[string]func(at string) (inTheWay string){
			"directory": func(at string) string {
				check(t, os.Remove(at))
				check(t, os.Mkdir(at, 0o755))
				write(t, filepath.Join(at, "found"), "x")
				return at
			},
			"file in place of its directory": func(at string) string {
				check(t, os.RemoveAll(filepath.Dir(at)))
				write(t, filepath.Dir(at), "x")
				return filepath.Dir(at)
			},
			"immutable": func(at string) string {
				check(t, os.Remove(at))
				write(t, at, "x")
				run(t, "chattr", "+i", at)
				t.Cleanup(func() { _ = exec.Command("chattr", "-i", at).Run() })
				return at
			},
		} {
			r := newRepo(t)
			_, err := importAll(t, r, s.commit, s.objects(), "os")
			check(t, err)
			inTheWay := put(filepath.Join(r.Path(), "objects", object))
			_, err = importAll(t, r, s.commit, s.objects(), "again")
			if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "this machine's repository is damaged") || !strings.Contains(fault.HintOf(err), "remove "+inTheWay) {
				t.Errorf("%s, %s: %v, hint %s", object, what, err, fault.HintOf(err))
			}
			run(t, "chattr", "-i", inTheWay)
			check(t, os.RemoveAll(inTheWay))
			_, err = importAll(t, r, s.commit, s.objects(), "again")
			check(t, err)
			run(t, "ostree", "fsck", "--repo="+r.Path())
		}
	}
}

// TestNothingInPlaceOfWrong: where nothing provides the right object, the error names the repository, and the hint helps.
func TestNothingInPlaceOfWrong(t *testing.T) {
	s, r := newSource(t), newRepo(t)
	_, err := importAll(t, r, s.commit, s.objects(), "os")
	check(t, err)
	for path := range s.objects() {
		objects := s.objects()
		delete(objects, path)
		at := filepath.Join(r.Path(), "objects", strings.Replace(path, ".filez", ".file", 1))
		if info, err := os.Lstat(at); err != nil || !info.Mode().IsRegular() || strings.HasSuffix(path, ".commitmeta") {
			continue
		}
		rewritten(func(d []byte) []byte { return append([]byte("x"), d...) })(t, at)
		_, err := importAll(t, r, s.commit, objects, "again")
		if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "this machine's repository is damaged") || !strings.Contains(fault.HintOf(err), "remove "+at) {
			t.Errorf("%s: %v, hint %s", path, err, fault.HintOf(err))
		}
		check(t, os.Remove(at))
		_, err = importAll(t, r, s.commit, s.objects(), "again")
		check(t, err)
	}
}
