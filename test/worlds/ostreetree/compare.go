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

// Compare checks that a bare repository has the same commit as another one. The real
// ostree must find no error in the repository and list the commit with the same owners,
// modes, extended attributes and checksums. Then every object of the other repository
// must exist in repo, in a file with the same attributes. Compare returns the additional
// objects of repo, as named by Objects.
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

// List returns the tree of a commit as listed by ostree.
func List(repo, commit string) (string, error) {
	return Ostree("ls", "--repo="+repo, "-R", "-C", "-X", commit)
}

// Refs returns the refs of a repository with their commits. It reads the files, because running ostree
// for them takes a tenth of the time of some tests.
func Refs(repo string) (map[string]string, error) {
	refs := map[string]string{}
	root := filepath.Join(repo, "refs")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		kind, name, _ := strings.Cut(strings.TrimPrefix(path, root+"/"), "/")
		if kind != "heads" {
			return fmt.Errorf("%s is a ref of a remote, which no test makes", path)
		}
		commit, err := os.ReadFile(path)
		refs[name] = strings.TrimSuffix(string(commit), "\n")
		return err
	})
	return refs, err
}

// Objects returns the loose objects of a repository, such as "ab/cdef….file", sorted.
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

// objectFile holds the attributes of an object's file that must be equal.
type objectFile struct {
	mode, uid, gid uint32
	size           int64
	mtime          int64 // in seconds; 0 except for regular file objects, since for others it is the time of writing
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
