package ostree

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// ReadFile reads a regular file of a commit in the repository by its path, as
// "usr/etc/fstab". One that is not there is an fs.ErrNotExist.
func (r *Repo) ReadFile(c Checksum, name string) ([]byte, error) {
	return r.ReadFileUpTo(c, name, math.MaxInt64)
}

// ReadFileUpTo is ReadFile for one that must not be larger than most bytes.
func (r *Repo) ReadFileUpTo(c Checksum, name string, most int64) ([]byte, error) {
	tree, found, err := r.directory(c, path.Dir(name))
	if err != nil {
		return nil, err
	}
	if found {
		for f := range tree.allFiles() {
			if string(f.name) == path.Base(name) {
				return readRegular(r.objectPath(ObjectName{f.file, File}), most)
			}
		}
	}
	return nil, fmt.Errorf("cannot read %s of commit %s: %w", name, c, fs.ErrNotExist)
}

// FileNames are the names of the files and symbolic links in a directory of a commit,
// in order; none if there is no such directory.
func (r *Repo) FileNames(c Checksum, dir string) ([]string, error) {
	tree, found, err := r.directory(c, dir)
	if err != nil || !found {
		return nil, err
	}
	var names []string
	for f := range tree.allFiles() {
		names = append(names, string(f.name))
	}
	return names, nil
}

// directory loads a directory of a commit by its path; false if there is none.
func (r *Repo) directory(c Checksum, dir string) (dirTree, bool, error) {
	info, err := r.LoadCommit(c)
	if err != nil {
		return dirTree{}, false, err
	}
	return r.loadBelow(info.RootTree, dir)
}

// DirTree is the checksum of a directory in a commit: equal for directories of the
// same names with the same files, whatever their own owners and modes. It is zero if
// there is no such directory.
func (r *Repo) DirTree(c Checksum, dir string) (Checksum, error) {
	info, err := r.LoadCommit(c)
	if err != nil {
		return Checksum{}, err
	}
	tree, _, err := r.findBelow(info.RootTree, dir)
	return tree, err
}

// loadBelow loads a directory by its path below another; false if there is none.
func (r *Repo) loadBelow(root Checksum, dir string) (dirTree, bool, error) {
	below, found, err := r.findBelow(root, dir)
	if err != nil || !found {
		return dirTree{}, false, err
	}
	tree, err := r.loadTree(below)
	return tree, err == nil, err
}

// findBelow finds a directory by its path below another; false if there is none.
func (r *Repo) findBelow(root Checksum, dir string) (Checksum, bool, error) {
	for name := range strings.SplitSeq(dir, "/") {
		tree, err := r.loadTree(root)
		if err != nil {
			return Checksum{}, false, err
		}
		below, found := tree.dir(name)
		if !found {
			return Checksum{}, false, nil
		}
		root = below.tree
	}
	return root, true, nil
}

// readRegular reads a file that is none if it is a symbolic link: in a repository that
// would lead to a file of the running system.
func readRegular(name string, most int64) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("it is a symbolic link: %w", err)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() > most {
		return nil, cmp.Or(err, fmt.Errorf("it has more than %d bytes", most))
	}
	return io.ReadAll(f)
}
