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
	return locator(r.objectPath).readFile(c, name)
}

// ReadFile is the same of a commit of this import or of the repository.
func (im *Import) ReadFile(c Checksum, name string) ([]byte, error) {
	return locator(im.objectPath).readFile(c, name)
}

// locator says where an object is.
type locator func(ObjectName) string

func (at locator) readFile(c Checksum, name string) ([]byte, error) {
	info, err := at.loadCommit(c)
	if err != nil {
		return nil, err
	}
	tree, found, err := at.loadBelow(info.RootTree, path.Dir(name))
	if err != nil {
		return nil, err
	}
	if found {
		for f := range tree.allFiles() {
			if string(f.name) == path.Base(name) {
				return readRegular(at(ObjectName{f.file, File}))
			}
		}
	}
	return nil, fmt.Errorf("cannot read %s of commit %s: %w", name, c, fs.ErrNotExist)
}

// loadBelow loads a directory by its path below another; false if there is none.
func (at locator) loadBelow(root Checksum, dir string) (dirTree, bool, error) {
	tree, err := at.loadTree(root)
	if err != nil {
		return tree, false, err
	}
	for name := range strings.SplitSeq(dir, "/") {
		below, found := tree.dir(name)
		if !found {
			return tree, false, nil
		}
		if tree, err = at.loadTree(below.tree); err != nil {
			return tree, false, err
		}
	}
	return tree, true, nil
}

func (at locator) loadTree(c Checksum) (dirTree, error) {
	name := ObjectName{c, DirTree}
	data, err := os.ReadFile(at(name))
	if err != nil {
		return dirTree{}, fmt.Errorf("cannot load directory: %w", err)
	}
	tree, err := openDirTree(data)
	if err != nil {
		return dirTree{}, corrupt(name, "%v", err)
	}
	return tree, nil
}

func (at locator) loadCommit(c Checksum) (*CommitInfo, error) {
	name := ObjectName{c, Commit}
	data, err := os.ReadFile(at(name))
	if err != nil {
		return nil, fmt.Errorf("cannot load commit: %w", err)
	}
	info, err := parseCommit(data)
	if err != nil {
		return nil, corrupt(name, "%v", err)
	}
	return info, nil
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
