package hostfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lockedFlags are the inode flags with which a file can be neither removed nor, as a directory, emptied (chattr(1), +i
// and +a), as statx(2) and FS_IOC_GETFLAGS call them.
const (
	lockedAttributes = unix.STATX_ATTR_IMMUTABLE | unix.STATX_ATTR_APPEND
	lockedFlags      = 0x10 | 0x20 // FS_IMMUTABLE_FL, FS_APPEND_FL
)

// Locked returns the path of an entry, at a path or below, that chattr +i or +a keeps from being removed; "" if there
// is none, or nothing is there. It follows no links and enters no other file system.
func Locked(path string) (locked string, err error) {
	err = eachLocked(path, func(_ *os.File, _, at string) error {
		locked = at
		return fs.SkipAll
	})
	if errors.Is(err, fs.SkipAll) {
		err = nil
	}
	return locked, err
}

// Unlock undoes chattr +i and +a at and below a path, so that what is there can be removed. It follows no links and enters
// no other file system: users own directories in some of these trees.
func Unlock(path string) error { return eachLocked(path, unlock) }

func unlock(dir *os.File, name, at string) error {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot undo chattr +i or +a of %s: %w", at, err)
	}
	defer unix.Close(fd)
	flags, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, flags&^lockedFlags)
	}
	if err != nil {
		return fmt.Errorf("cannot undo chattr +i or +a of %s: %w", at, err)
	}
	return nil
}

// eachLocked calls act for each locked file and directory at and below a path, a directory before its files.
func eachLocked(path string, act func(dir *os.File, name, at string) error) error {
	dir, err := os.Open(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot look for what chattr has locked: %w", err)
	}
	defer dir.Close()
	return lockedIn(dir, filepath.Base(path), path, act)
}

func lockedIn(dir *os.File, name, at string, act func(dir *os.File, name, at string) error) error {
	var st unix.Statx_t
	err := unix.Statx(int(dir.Fd()), name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_TYPE, &st)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot look at %s: %w", at, err)
	}
	if st.Attributes&lockedAttributes != 0 {
		if err := act(dir, name, at); err != nil {
			return err
		}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return nil
	}
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("cannot look at %s: %w", at, err)
	}
	below := os.NewFile(uintptr(fd), at)
	defer below.Close()
	names, err := below.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("cannot look at %s: %w", at, err)
	}
	for _, name := range names {
		if err := lockedIn(below, name, filepath.Join(at, name), act); err != nil {
			return err
		}
	}
	return nil
}
