package hostfiles

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Directories can belong to users, in /var and in /etc. Users can replace anything in them at any time: by a symbolic
// link, an irremovable directory, or a FIFO that hangs who opens it. The rule: below a directory that anybody but root
// may write, nothing is followed, nothing is opened by a name twice, and what stands in the way is moved aside. Dir is
// the one place that holds it: whoever reads, makes or removes an entry does so in a Dir.

// Dir is the open directory of an entry.
type Dir struct {
	file   *os.File
	shared bool
}

// ErrLink is the error if there is a symbolic link on the way to an entry that is not followed.
var ErrLink = errors.New("a symbolic link, which is not followed")

// unreachable reports whether an error means that there is no entry at a path: none, one behind
// something that is no directory, or one behind what is not entered.
func unreachable(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, ErrLink) || errors.Is(err, ErrMounted)
}

// Follow says which symbolic links on the way to an entry are followed.
type Follow int

const (
	// FollowNone follows none. Only the link of the first directory, such as /home, is followed,
	// because only root can change the root directory.
	FollowNone Follow = iota
	// FollowRoots follows links in directories that only root may write.
	FollowRoots
)

// OpenDir opens the directory of the entry at a path below root. The error wraps fs.ErrNotExist if
// it does not exist, unix.ENOTDIR if something else is there, and ErrLink.
func OpenDir(root, name string, follow Follow) (*Dir, error) {
	at, err := walk(root, name, func(at *Dir, part string) (*Dir, error) { return at.open(part, follow) })
	if err != nil {
		return nil, errors.Join(err, at.Close())
	}
	return at, nil
}

// MakeWay is OpenDir with FollowNone for an entry that is to be made. In a Shared directory, it moves aside what is in
// the place of a directory on the way, tells note what that was, and makes missing directories as root's.
func MakeWay(disk Disk, root, name string, note func(string)) (*Dir, error) {
	at, err := walk(root, name, func(at *Dir, part string) (*Dir, error) { return at.makeWay(disk, part, note) })
	if err != nil {
		return nil, errors.Join(err, at.Close())
	}
	return at, nil
}

// walk opens the directory of the entry at a path below root: each directory on the way in the one
// above, with open. After an error, it returns the last one that it could open.
func walk(root, name string, open func(at *Dir, part string) (*Dir, error)) (*Dir, error) {
	parts := strings.Split(strings.Trim(path.Dir(path.Join("/", name)), "/"), "/")
	// The first directory may be a link: only root can change the root directory.
	at, err := openBelow(unix.AT_FDCWD, filepath.Join(root, parts[0]), 0)
	walked := "/" + parts[0]
	for _, part := range parts[1:] {
		if err != nil {
			break
		}
		walked = path.Join(walked, part)
		var next *Dir
		if next, err = open(at, part); err == nil {
			err = at.Close()
			at = next
		}
	}
	if errors.Is(err, ErrMounted) && at != nil {
		at.shared = true // a user decides what is there
	}
	if err != nil {
		return at, fmt.Errorf("%s: %w", walked, err)
	}
	return at, nil
}

// makeWay opens a directory in the directory. In a Shared one, it makes room for it.
func (d *Dir) makeWay(disk Disk, part string, note func(string)) (*Dir, error) {
	for n := 0; ; n++ {
		next, err := d.open(part, FollowNone)
		if err == nil || !d.shared || n == maxObstacles {
			return next, err
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = disk.Mkdir(d.At(part), 0o755)
		case Obstructed(err):
			err = d.MoveAside(disk, part, note)
		}
		if err != nil && !Obstructed(err) {
			return nil, err
		}
	}
}

// open opens a directory in the directory.
func (d *Dir) open(name string, follow Follow) (*Dir, error) {
	flags := unix.O_NOFOLLOW
	if follow == FollowRoots && !d.shared {
		flags = 0
	}
	fd, err := d.openat(name, flags|unix.O_DIRECTORY)
	if errors.Is(err, unix.ENOTDIR) && flags != 0 && d.isLink(name) {
		err = ErrLink
	}
	if err != nil {
		return nil, err
	}
	next, err := dirOf(fd, name)
	if err == nil {
		next.shared = next.shared || d.shared
	}
	return next, err
}

func openBelow(at int, name string, flags int) (*Dir, error) {
	fd, err := unix.Openat(at, name, flags|unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return dirOf(fd, name)
}

func dirOf(fd int, name string) (*Dir, error) {
	d := &Dir{file: os.NewFile(uintptr(fd), name)}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, errors.Join(asMounted(err), d.Close())
	}
	// With an access control list, the bits of the group are its mask.
	d.shared = st.Uid != 0 || st.Mode&0o022 != 0
	return d, nil
}

func (d *Dir) isLink(name string) bool {
	var st unix.Stat_t
	return unix.Fstatat(int(d.file.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK
}

// followed returns the target of a link in the directory that open would follow; "" if there is none.
func (d *Dir) followed(name string, follow Follow) string {
	if follow != FollowRoots || d.shared || !d.isLink(name) {
		return ""
	}
	to, err := os.Readlink(d.At(name))
	if err != nil {
		return ""
	}
	return to
}

// Close closes the directory. Closing nil is a no-op.
func (d *Dir) Close() error {
	if d == nil {
		return nil
	}
	return d.file.Close()
}

// Shared reports whether anybody but root may write the directory, or one on the way to it.
func (d *Dir) Shared() bool { return d.shared }

// Path returns a path to the directory that stays valid if the directory is renamed. It is for the
// methods of a Disk.
func (d *Dir) Path() string { return d.At(".") }

// At returns such a path to an entry of the directory.
func (d *Dir) At(base string) string { return pathOf(int(d.file.Fd())) + "/" + base }

// batch is the number of entries that are listed at a time: users may make any number of them.
const batch = 1000

// each calls visit for each entry of the directory, until it returns an error.
func (d *Dir) each(visit func(fs.DirEntry) error) error {
	dir, err := os.Open(d.Path())
	if err != nil {
		return err
	}
	defer dir.Close()
	for {
		some, err := dir.ReadDir(batch)
		for _, entry := range some {
			if err := visit(entry); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// temporary is the beginning of the names of temporary files: hidden, so that programs ignore them.
const temporary = ".pivot-"

// TemporaryName returns a name that nobody can predict, so that nobody can put anything there
// first.
func TemporaryName() string {
	name := make([]byte, 16)
	_, _ = rand.Read(name) // never fails
	return temporary + hex.EncodeToString(name)
}

// IsTemporary reports whether a name was returned by TemporaryName.
func IsTemporary(name string) bool {
	digits, ours := strings.CutPrefix(name, temporary)
	_, err := hex.DecodeString(digits)
	return ours && err == nil && len(digits) == 32
}

// aside is the beginning of the name to which an obstacle is moved.
const aside = ".obstructs-"

// MoveAside moves what stands at an entry's place, and cannot be replaced, to another name in the
// same directory, and tells note that name. It is for a Shared directory: what is there is a user's,
// and stays that user's. The error wraps fs.ErrNotExist if the user has removed it.
func (d *Dir) MoveAside(disk Disk, base string, note func(string)) error {
	name := aside + strings.TrimPrefix(TemporaryName(), temporary)[:16] + "-" + base
	if len(name) > unix.NAME_MAX {
		name = name[:unix.NAME_MAX]
	}
	if err := disk.Rename(d.At(base), d.At(name)); err != nil {
		return err
	}
	note(fmt.Sprintf("%s was in the way, and is %s now", base, name))
	return nil
}

// maxTemporary is the number of temporary files that Clear removes at a time: a user may make any
// number of names that look like them.
const maxTemporary = 64

// Clear removes the temporary files that a killed run may have left.
func (d *Dir) Clear(disk Disk) error {
	removed := 0
	return d.each(func(entry fs.DirEntry) error {
		if !IsTemporary(entry.Name()) || entry.IsDir() || removed == maxTemporary {
			return nil
		}
		removed++
		if err := disk.Remove(d.At(entry.Name())); err != nil && !Obstructed(err) {
			return err
		}
		return nil
	})
}

// Obstructed reports whether an error can be due to what a user has put at a name, or removed.
func Obstructed(err error) bool {
	known := []error{fs.ErrNotExist, unix.ENOTEMPTY, unix.EISDIR, unix.ENOTDIR, unix.ELOOP, unix.EEXIST, ErrLink, ErrMounted, errReplaced, unix.EBUSY}
	return slices.ContainsFunc(known, func(is error) bool { return errors.Is(err, is) })
}

// replaceable reports whether a rename can replace what is there, and what it replaces is known.
func (d *Dir) replaceable(base string) bool {
	var st unix.Stat_t
	if err := unix.Fstatat(int(d.file.Fd()), base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return true
	}
	kind := kindOf(&st)
	return kind == KindLink || kind == KindFile && st.Size <= maxRead
}

// maxObstacles is the number of times that a user may be quicker than Place.
const maxObstacles = 100

// Place renames a file from another directory, or a temporary name of this one, to an entry's
// name. In a Shared directory, what cannot be replaced is moved aside; note is told its name.
func (d *Dir) Place(disk Disk, from, base string, note func(string)) error {
	for n := 0; ; n++ {
		if !d.shared || d.replaceable(base) {
			err := disk.Rename(from, d.At(base))
			inTheWay := errors.Is(err, unix.EISDIR) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST)
			if !d.shared || !inTheWay || n == maxObstacles {
				return err
			}
		}
		if err := d.MoveAside(disk, base, note); err != nil && (!errors.Is(err, fs.ErrNotExist) || n == maxObstacles) {
			return err
		}
	}
}
