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
	info, err := r.LoadCommit(c)
	if err != nil {
		return nil, err
	}
	tree, found, err := r.loadBelow(info.RootTree, path.Dir(name))
	if err != nil {
		return nil, err
	}
	if found {
		for f := range tree.allFiles() {
			if string(f.name) == path.Base(name) {
				return readRegular(r.objectPath(ObjectName{f.file, File}))
			}
		}
	}
	return nil, fmt.Errorf("cannot read %s of commit %s: %w", name, c, fs.ErrNotExist)
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
