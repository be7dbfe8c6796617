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

// Directories in /var can belong to users, as a home directory does, who could put a link in
// place of any name in them. So each directory on the way to an entry is opened in the one
// above it, no link followed, and what is done there is done by that descriptor: who is not
// root can redirect nothing beyond what is theirs.

// errLink is why an entry cannot be where a link is on the way.
var errLink = errors.New("a symbolic link, which is not followed: ask for the path that it leads to")

// open opens the directory that an entry is in. One that is not there is an
// fs.ErrNotExist.
func open(root, name string) (*os.File, error) {
	parts := strings.Split(strings.TrimPrefix(path.Dir(name), "/"), "/")
	// What is in the root directory is the system's: a mount, or a link to it.
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

// Look reads what stands at the path of an entry, as the projection does: no link is
// followed on the way, so what is behind one does not stand there.
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

// within is the path of an open directory, whatever becomes of its name.
func within(dir *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", dir.Fd()) }

// place is where an entry stands or shall stand.
type place struct {
	disk   hostfiles.Disk
	dir    *os.File
	target string // the entry, by the open directory
	beside string // a name for what is about to take its place; who reads the directory whole passes over such names
}

// at opens the place of an entry. Close it.
func (p *Projector) at(name string) (*place, error) {
	dir, err := open(p.Root, name)
	if err != nil {
		return nil, err
	}
	base := path.Base(name)
	return &place{
		disk: p.Disk, dir: dir, target: filepath.Join(within(dir), base),
		beside: filepath.Join(within(dir), fmt.Sprintf(".pivot-%.8x", sha256.Sum256([]byte(base)))),
	}, nil
}

// Close closes it.
func (at *place) Close() error { return at.dir.Close() }

// put makes an entry stand in its place, where something else does, or nothing: durably,
// and at no moment a part of a file.
func (at *place) put(f hostfiles.File, have hostfiles.File, there bool, label string) error {
	isDir, wasDir := f.Kind == hostfiles.KindDirectory, there && have.Kind == hostfiles.KindDirectory
	if isDir && wasDir {
		return errors.Join(at.disk.Own(at.target, f.Entry), at.disk.Sync(at.target))
	}
	if there && (isDir || wasDir) { // no rename puts one in place of the other
		if err := at.remove(); err != nil {
			return err
		}
	}
	if isDir {
		return errors.Join(at.disk.Make(at.target, f, label), at.sync())
	}
	err := at.disk.Make(at.beside, f, label)
	if err == nil && f.Kind == hostfiles.KindFile {
		err = at.disk.Sync(at.beside)
	}
	if err == nil {
		err = at.disk.Rename(at.beside, at.target)
	}
	return errors.Join(err, at.sync())
}

// errFull is why a directory is not removed.
var errFull = errors.New("there is more in it")

// remove removes what stands there.
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

// settle makes durable what stands there already: who did it may have been killed before
// that.
func (at *place) settle(have hostfiles.File, there bool) error {
	if there && have.Kind == hostfiles.KindDirectory {
		if err := at.disk.Sync(at.target); err != nil {
			return err
		}
	}
	return at.sync()
}

// clear removes what a crash has left beside the entry.
func (at *place) clear() error {
	if _, err := os.Lstat(at.beside); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return at.disk.Remove(at.beside)
}

func (at *place) sync() error { return at.disk.Sync(within(at.dir)) }
