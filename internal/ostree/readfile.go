package ostree

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/guard"
)

// maxFile is the maximum size of a file that is read into memory, in bytes. The largest are those of
// SELinux policies, with less than 8 MiB.
const maxFile = 16 << 20

// Objects are the objects of a repository, or those of an import and of its repository, by the paths of their files. What
// an import has not fetched yet is an fs.ErrNotExist.
type Objects func(ObjectName) string

// ReadFile reads a regular file of a commit by its path, such as
// "usr/etc/fstab". If it does not exist, the error is an fs.ErrNotExist; if it has more than
// 16 MiB, its kind is fault.BadInput.
func (at Objects) ReadFile(c Checksum, name string) ([]byte, error) {
	return at.ReadFileUpTo(c, name, maxFile)
}

// ReadFileUpTo is ReadFile with another maximum size, in bytes.
func (at Objects) ReadFileUpTo(c Checksum, name string, most int64) ([]byte, error) {
	tree, found, err := at.directory(c, path.Dir(name))
	if err != nil {
		return nil, err
	}
	if found {
		if f, found := tree.file(path.Base(name)); found {
			return readRegular(at(ObjectName{f.file, File}), most)
		}
	}
	return nil, fmt.Errorf("cannot read %s of commit %s: %w", name, c, fs.ErrNotExist)
}

// InCommit returns the path in a commit, from its root, of a file of the deployed system. /etc is usr/etc there.
func InCommit(name string) string {
	name = path.Join("/", name)[1:]
	if name == "etc" || strings.HasPrefix(name, "etc/") {
		return "usr/" + name
	}
	return name
}

// FileNames returns the names of the files and symbolic links in a directory of a commit,
// sorted, or none if there is no such directory.
func (at Objects) FileNames(c Checksum, dir string) ([]string, error) {
	tree, found, err := at.directory(c, dir)
	if err != nil || !found {
		return nil, err
	}
	return tree.fileNames(), nil
}

// fileNames returns the names of a directory's files and symbolic links, sorted.
func (t treeObject) fileNames() (names []string) {
	for f := range t.allFiles() {
		names = append(names, string(f.name))
	}
	return names
}

// Names returns the names of all entries in a directory of a commit, directories last, or none
// if there is no such directory.
func (at Objects) Names(c Checksum, dir string) ([]string, error) {
	tree, found, err := at.directory(c, dir)
	if err != nil || !found {
		return nil, err
	}
	names := tree.fileNames()
	for d := range tree.allDirs() {
		names = append(names, string(d.name))
	}
	return names, nil
}

// Found is the entry at a path of a commit: a directory, a file with its content, or a
// symbolic link with its target.
type Found struct {
	IsDir  bool
	Target string
	File   []byte
}

// Look reads the entry at a path of a commit. It returns false if there is
// none. Symbolic links are not followed.
func (at Objects) Look(c Checksum, name string) (Found, bool, error) {
	tree, found, err := at.directory(c, path.Dir(name))
	if err != nil || !found {
		return Found{}, false, err
	}
	if _, isDir := tree.dir(path.Base(name)); isDir {
		return Found{IsDir: true}, true, nil
	}
	f, found := tree.file(path.Base(name))
	if !found {
		return Found{}, false, nil
	}
	object := at(ObjectName{f.file, File})
	if target, err := os.Readlink(object); err == nil {
		return Found{Target: target}, true, nil
	}
	content, err := readRegular(object, maxFile)
	return Found{File: content}, err == nil, err
}

// HasDir reports whether a commit has a directory at a path. Symbolic links are not followed.
func (at Objects) HasDir(c Checksum, name string) (bool, error) {
	_, found, err := at.directory(c, name)
	return found, err
}

// DirTree returns the checksum of a directory's DirTree in a commit, or zero if there is no
// such directory. Directories with equal contents have equal checksums, even if their own
// owner or mode differ.
func (at Objects) DirTree(c Checksum, dir string) (Checksum, error) {
	tree, _, err := at.find(c, dir)
	return tree, err
}

// DirInfo reads the attributes of a directory in a commit by its path. found reports whether
// the directory exists.
func (at Objects) DirInfo(c Checksum, name string) (info DirInfo, found bool, err error) {
	parent, found, err := at.directory(c, path.Dir(name))
	if err != nil || !found {
		return DirInfo{}, false, err
	}
	dir, found := parent.dir(path.Base(name))
	if !found {
		return DirInfo{}, false, nil
	}
	info, err = at.ReadDirInfo(dir.meta)
	return info, err == nil, err
}

// HasPath reports whether a commit has a file, link or directory at a path
// such as "usr/etc/fstab". Symbolic links in the path are not followed.
func (at Objects) HasPath(c Checksum, name string) (bool, error) {
	tree, found, err := at.directory(c, path.Dir(name))
	if err != nil || !found {
		return false, err
	}
	if _, found := tree.dir(path.Base(name)); found {
		return true, nil
	}
	_, found = tree.file(path.Base(name))
	return found, nil
}

// directory loads a directory of a commit by its path. It returns false if there is none.
func (at Objects) directory(c Checksum, dir string) (treeObject, bool, error) {
	sum, found, err := at.find(c, dir)
	if err != nil || !found {
		return treeObject{}, false, err
	}
	tree, err := at.loadTree(sum)
	return tree, err == nil, err
}

// find returns the DirTree of a directory of a commit by its path, and whether it exists.
func (at Objects) find(c Checksum, dir string) (Checksum, bool, error) {
	info, err := at.LoadCommit(c)
	if err != nil {
		return Checksum{}, false, err
	}
	sum := info.RootTree
	for name := range strings.SplitSeq(dir, "/") {
		if name == "." { // path.Dir of a name in the root directory
			continue
		}
		tree, err := at.loadTree(sum)
		if err != nil {
			return Checksum{}, false, err
		}
		below, found := tree.dir(name)
		if !found {
			return Checksum{}, false, nil
		}
		sum = below.tree
	}
	return sum, true, nil
}

func (at Objects) loadTree(c Checksum) (treeObject, error) {
	name := ObjectName{c, DirTree}
	data, err := at.readMetadata(name)
	if err != nil {
		return treeObject{}, fmt.Errorf("cannot load directory: %w", err)
	}
	tree, err := openTree(data)
	if err != nil {
		return treeObject{}, corrupt(name, "%v", err)
	}
	return tree, nil
}

// LoadCommit reads a commit.
func (at Objects) LoadCommit(c Checksum) (*CommitInfo, error) {
	name := ObjectName{c, Commit}
	data, err := at.readMetadata(name)
	if err != nil {
		return nil, fmt.Errorf("cannot load commit: %w", err)
	}
	info, err := parseCommit(data)
	if err != nil {
		return nil, corrupt(name, "%v", err)
	}
	return info, nil
}

var errNotRegular = errors.New("it is no regular file")

// readRegular reads a file of at most most bytes. It does not follow a symbolic link: the object of a link would lead
// to a file of the running system. It reads nothing from a pipe or a device, which may have no end.
func readRegular(name string, most int64) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("it is a symbolic link: %w", err)
	}
	if errors.Is(err, unix.ENXIO) { // a socket
		return nil, errNotRegular
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	if info.Size() > most {
		return nil, guard.NewBudget(most, "bytes").Take(info.Size())
	}
	data := make([]byte, info.Size())
	_, err = io.ReadFull(f, data)
	return data, err
}
