package ostreetree

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Compare lets ostree say whether a bare repository has a commit as another one
// has it: the repository is sound, and its listing with owners, modes, extended
// attributes and checksums is the same. Then it looks whether each object of the
// other is there, in a file of the same kind. It returns the objects that the
// repository has besides, as Objects names them.
func Compare(repo, other, commit string) (besides []string, err error) {
	if _, err := Ostree("fsck", "--repo="+repo); err != nil {
		return nil, err
	}
	listing, err := List(repo, commit)
	if err != nil {
		return nil, err
	}
	want, err := List(other, commit)
	if err != nil {
		return nil, err
	}
	if listing != want {
		return nil, fmt.Errorf("commit %s is in %s\n%s\nbut in %s\n%s", commit, repo, listing, other, want)
	}
	return compareObjects(repo, other)
}

// List is all of a commit's tree, as ostree lists it.
func List(repo, commit string) (string, error) {
	return Ostree("ls", "--repo="+repo, "-R", "-C", "-X", commit)
}

// Objects are the loose objects of a repository, "ab/cdef….file", sorted.
func Objects(repo string) ([]string, error) {
	var names []string
	root := filepath.Join(repo, "objects")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, strings.TrimPrefix(path, root+"/"))
		}
		return err
	})
	slices.Sort(names)
	return names, err
}

func compareObjects(repo, other string) (besides []string, err error) {
	names, err := Objects(repo)
	if err != nil {
		return nil, err
	}
	wanted, err := Objects(other)
	if err != nil {
		return nil, err
	}
	for _, name := range wanted {
		got, err := fileOf(repo, name)
		if err != nil {
			return nil, err
		}
		want, err := fileOf(other, name)
		if err != nil {
			return nil, err
		}
		if got != want {
			return nil, fmt.Errorf("object %s is %+v in %s, but %+v in %s", name, got, repo, want, other)
		}
	}
	return slices.DeleteFunc(names, func(name string) bool {
		_, found := slices.BinarySearch(wanted, name)
		return found
	}), nil
}

// objectFile is what counts of an object's file besides its content.
type objectFile struct {
	mode, uid, gid uint32
	size           int64
	mtime          int64 // in seconds, of regular files' content; of others it is the time of writing
}

func fileOf(repo, object string) (objectFile, error) {
	path := filepath.Join(repo, "objects", object)
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return objectFile{}, &os.PathError{Op: "lstat", Path: path, Err: err}
	}
	f := objectFile{mode: st.Mode, uid: st.Uid, gid: st.Gid, size: st.Size}
	if filepath.Ext(object) == ".file" && st.Mode&unix.S_IFMT == unix.S_IFREG {
		f.mtime = st.Mtim.Sec
	}
	return f, nil
}
