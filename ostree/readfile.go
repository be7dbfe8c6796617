package ostree

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// ReadFile reads a regular file of a commit in the repository by its path, as
// "usr/etc/fstab". One that is not there is an fs.ErrNotExist.
func (r *Repo) ReadFile(c Checksum, name string) ([]byte, error) {
	info, err := r.LoadCommit(c)
	if err != nil {
		return nil, err
	}
	tree, err := r.loadBelow(info.RootTree, path.Dir(name))
	if err != nil {
		return nil, err
	}
	if tree != nil {
		i := slices.IndexFunc(tree.files, func(f fileEntry) bool { return f.name == path.Base(name) })
		if i >= 0 {
			return os.ReadFile(r.objectPath(ObjectName{tree.files[i].file, File}))
		}
	}
	return nil, fmt.Errorf("cannot read %s of commit %s: %w", name, c, fs.ErrNotExist)
}

// loadBelow loads a directory by its path below another; nil if there is none.
func (r *Repo) loadBelow(root Checksum, dir string) (*dirTree, error) {
	tree, err := r.loadTree(root)
	if err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(dir, "/") {
		i, found := tree.dir(name)
		if !found {
			return nil, nil
		}
		if tree, err = r.loadTree(tree.dirs[i].tree); err != nil {
			return nil, err
		}
	}
	return tree, nil
}
