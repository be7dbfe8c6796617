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

// ReadFile reads a regular file of a commit in the repository by its path, such as
// "usr/etc/fstab". If it does not exist, the error is an fs.ErrNotExist; if it has more than
// 16 MiB, its kind is fault.BadInput.
func (r *Repo) ReadFile(c Checksum, name string) ([]byte, error) {
	return r.ReadFileUpTo(c, name, maxFile)
}

// ReadFileUpTo is ReadFile with another maximum size, in bytes.
func (r *Repo) ReadFileUpTo(c Checksum, name string, most int64) ([]byte, error) {
	return locator(r.objectPath).readFile(c, name, most)
}

// ReadFile is like Repo.ReadFile, for a commit of this import or of the repository.
func (im *Import) ReadFile(c Checksum, name string) ([]byte, error) {
	return locator(im.objectPath).readFile(c, name, maxFile)
}

// Names is like Repo.Names, for a commit of this import or of the repository. An object that is not there
// yet is an fs.ErrNotExist.
func (im *Import) Names(c Checksum, dir string) ([]string, error) {
	return locator(im.objectPath).names(c, dir)
}

// Look is like Repo.Look, for a commit of this import or of the repository. An object that is not there yet
// is an fs.ErrNotExist.
func (im *Import) Look(c Checksum, name string) (Found, bool, error) {
	return locator(im.objectPath).look(c, name)
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
func (r *Repo) FileNames(c Checksum, dir string) ([]string, error) {
	tree, found, err := locator(r.objectPath).directory(c, dir)
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
func (r *Repo) Names(c Checksum, dir string) ([]string, error) {
	return locator(r.objectPath).names(c, dir)
}

func (at locator) names(c Checksum, dir string) ([]string, error) {
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

// Look reads the entry at a path of a commit in the repository. It returns false if there is
// none. Symbolic links are not followed.
func (r *Repo) Look(c Checksum, name string) (Found, bool, error) {
	return locator(r.objectPath).look(c, name)
}

func (at locator) look(c Checksum, name string) (Found, bool, error) {
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

// HasDir reports whether a commit in the repository has a directory at a path. Symbolic links are not
// followed.
func (r *Repo) HasDir(c Checksum, name string) (bool, error) {
	_, found, err := locator(r.objectPath).directory(c, name)
	return found, err
}

// HasDir is like Repo.HasDir, for a commit of this import or of the repository. An object that is not there
// yet is an fs.ErrNotExist.
func (im *Import) HasDir(c Checksum, name string) (bool, error) {
	_, found, err := locator(im.objectPath).directory(c, name)
	return found, err
}

// DirTree returns the checksum of a directory's DirTree in a commit, or zero if there is no
// such directory. Directories with equal contents have equal checksums, even if their own
// owner or mode differ.
func (r *Repo) DirTree(c Checksum, dir string) (Checksum, error) {
	tree, _, err := locator(r.objectPath).find(c, dir)
	return tree, err
}

// DirInfo reads the attributes of a directory in a commit by its path. found reports whether
// the directory exists.
func (r *Repo) DirInfo(c Checksum, name string) (info DirInfo, found bool, err error) {
	at := locator(r.objectPath)
	parent, found, err := at.directory(c, path.Dir(name))
	if err != nil || !found {
		return DirInfo{}, false, err
	}
	dir, found := parent.dir(path.Base(name))
	if !found {
		return DirInfo{}, false, nil
	}
	info, err = at.dirInfo(dir.meta)
	return info, err == nil, err
}

// HasPath reports whether a commit in the repository has a file, link or directory at a path
// such as "usr/etc/fstab". Symbolic links in the path are not followed.
func (r *Repo) HasPath(c Checksum, name string) (bool, error) {
	tree, found, err := locator(r.objectPath).directory(c, path.Dir(name))
	if err != nil || !found {
		return false, err
	}
	if _, found := tree.dir(path.Base(name)); found {
		return true, nil
	}
	_, found = tree.file(path.Base(name))
	return found, nil
}

// locator returns the path of an object's file.
type locator func(ObjectName) string

func (at locator) readFile(c Checksum, name string, most int64) ([]byte, error) {
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

// directory loads a directory of a commit by its path. It returns false if there is none.
func (at locator) directory(c Checksum, dir string) (treeObject, bool, error) {
	sum, found, err := at.find(c, dir)
	if err != nil || !found {
		return treeObject{}, false, err
	}
	tree, err := at.loadTree(sum)
	return tree, err == nil, err
}

// find returns the DirTree of a directory of a commit by its path, and whether it exists.
func (at locator) find(c Checksum, dir string) (Checksum, bool, error) {
	info, err := at.loadCommit(c)
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

func (at locator) loadTree(c Checksum) (treeObject, error) {
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

func (at locator) loadCommit(c Checksum) (*CommitInfo, error) {
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
