package projection

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/hostfiles"
)

// Directories in /var can belong to users, such as home directories, and users could replace
// anything in them by a symbolic link. So each directory on the way to an entry is opened
// relative to the one above it, without following links, and operations use that descriptor.
// Users cannot redirect these to a place outside of their own directories.

// errLink is the error if there is a symbolic link on the way to an entry.
var errLink = errors.New("a symbolic link, which is not followed: ask for the path that it leads to")

// open opens the directory of an entry. The error wraps fs.ErrNotExist if it does not exist.
func open(root, name string) (*os.File, error) {
	parts := strings.Split(strings.TrimPrefix(path.Dir(name), "/"), "/")
	// The first part may be a link: only root can change the root directory.
	at, err := unix.Open(filepath.Join(root, parts[0]), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	walked := "/" + parts[0]
	for _, part := range parts[1:] {
		if err != nil {
			break
		}
		walked = path.Join(walked, part)
		next, oerr := unix.Openat(at, part, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if errors.Is(oerr, unix.ENOTDIR) && isLink(at, part) {
			oerr = errLink
		}
		err = errors.Join(oerr, unix.Close(at))
		at = next
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", walked, err)
	}
	return os.NewFile(uintptr(at), walked), nil
}

func isLink(dir int, name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK
}

// Look reads the entry at a path, as the projection does: it follows no links on the way, so an
// entry behind a link counts as missing.
func Look(root, name string) (f hostfiles.File, ok bool, err error) {
	dir, err := open(root, name)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR), errors.Is(err, errLink):
		return hostfiles.File{}, false, nil
	case err != nil:
		return hostfiles.File{}, false, fmt.Errorf("cannot look at %s: %w", name, err)
	}
	defer dir.Close()
	f, ok, err = hostfiles.Read(within(dir), path.Base(name))
	f.Path = name
	return f, ok, err
}

// within returns a path to an open directory that stays valid if the directory is renamed.
func within(dir *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", dir.Fd()) }

// place is the place of an entry in its open directory.
type place struct {
	disk   hostfiles.Disk
	dir    *os.File
	target string // path of the entry
	temp   string // path of its replacement before the rename; hidden, so that programs ignore it
}

// at opens the place of an entry. The caller must close it.
func (p *Projector) at(name string) (*place, error) {
	dir, err := open(p.Root, name)
	if err != nil {
		return nil, err
	}
	base := path.Base(name)
	return &place{
		disk: p.Disk, dir: dir, target: filepath.Join(within(dir), base),
		temp: filepath.Join(within(dir), fmt.Sprintf(".pivot-%.8x", sha256.Sum256([]byte(base)))),
	}, nil
}

// Close closes the directory.
func (at *place) Close() error { return at.dir.Close() }

// put creates an entry, or replaces the one there, durably. A file appears atomically.
func (at *place) put(f hostfiles.File, have hostfiles.File, there bool, label string) error {
	isDir, wasDir := f.Kind == hostfiles.KindDirectory, there && have.Kind == hostfiles.KindDirectory
	if isDir && wasDir {
		return errors.Join(at.disk.Own(at.target, f.Entry), at.settle(have, there))
	}
	if there && (isDir || wasDir) { // a rename cannot replace one by the other
		if err := at.remove(); err != nil {
			return err
		}
	}
	if isDir {
		return errors.Join(at.disk.Make(at.target, f, label), at.sync())
	}
	err := at.disk.Make(at.temp, f, label)
	if err == nil && f.Kind == hostfiles.KindFile {
		err = at.disk.Sync(at.temp)
	}
	if err == nil {
		err = at.disk.Rename(at.temp, at.target)
	}
	return errors.Join(err, at.sync())
}

// errFull is the error if a directory to be removed is not empty.
var errFull = errors.New("there is more in it")

// remove removes the entry durably.
func (at *place) remove() error {
	err := at.disk.Remove(at.target)
	if errors.Is(err, unix.ENOTEMPTY) {
		return errFull
	}
	if err != nil {
		return err
	}
	return at.sync()
}

// settle makes an entry that is already as wanted durable, since an earlier run may have been
// killed before it did that.
func (at *place) settle(have hostfiles.File, there bool) error {
	if there && have.Kind == hostfiles.KindDirectory {
		if err := at.disk.Sync(at.target); err != nil {
			return err
		}
	}
	return at.sync()
}

// clear removes the temporary file that a crash may have left.
func (at *place) clear() error {
	if _, err := os.Lstat(at.temp); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return at.disk.Remove(at.temp)
}

func (at *place) sync() error { return at.disk.Sync(within(at.dir)) }
