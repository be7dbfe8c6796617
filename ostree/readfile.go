package ostree

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// ReadFile reads a regular file of a commit in the repository by its path, as
// "usr/etc/fstab". One that is not there is an fs.ErrNotExist.
func (r *Repo) ReadFile(c Checksum, name string) ([]byte, error) {
	tree, found, err := r.loadAbove(c, name)
	if err != nil {
		return nil, err
	}
	if found {
		if f, found := tree.file(path.Base(name)); found {
			return readRegular(r.objectPath(ObjectName{f.file, File}))
		}
	}
	return nil, fmt.Errorf("cannot read %s of commit %s: %w", name, c, fs.ErrNotExist)
}

// HasPath reports whether a commit in the repository has a file, link or directory by
// its path, as "usr/etc/fstab". Links on the way are not followed.
func (r *Repo) HasPath(c Checksum, name string) (bool, error) {
	tree, found, err := r.loadAbove(c, name)
	if err != nil || !found {
		return false, err
	}
	if _, found := tree.dir(path.Base(name)); found {
		return true, nil
	}
	_, found = tree.file(path.Base(name))
	return found, nil
}

// loadAbove loads the directory that a path of a commit is in; false if there is none.
func (r *Repo) loadAbove(c Checksum, name string) (dirTree, bool, error) {
	info, err := r.LoadCommit(c)
	if err != nil {
		return dirTree{}, false, err
	}
	return r.loadBelow(info.RootTree, path.Dir(name))
}

// loadBelow loads a directory by its path below another; false if there is none.
func (r *Repo) loadBelow(root Checksum, dir string) (dirTree, bool, error) {
	tree, err := r.loadTree(root)
	if err != nil {
		return tree, false, err
	}
	for name := range strings.SplitSeq(dir, "/") {
		below, found := tree.dir(name)
		if !found {
			return tree, false, nil
		}
		if tree, err = r.loadTree(below.tree); err != nil {
			return tree, false, err
		}
	}
	return tree, true, nil
}

// readRegular reads a file that is none if it is a symbolic link: in a repository that
// would lead to a file of the running system.
func readRegular(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}
