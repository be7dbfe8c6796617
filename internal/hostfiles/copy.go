package hostfiles

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// copier copies trees with directories that users may change meanwhile, up to a number of bytes and entries.
type copier struct {
	bytes   int64
	entries int
}

// errTooMuch is the error if there is more to copy than a copier may.
var errTooMuch = errors.New("there is too much in it")

// copyTree copies a file, or a directory with everything in it, to a new path: contents,
// symbolic links, owners, modes, times, and extended attributes including SELinux labels.
// It skips sockets, and in directories that users own also FIFOs and devices.
func copyTree(from, to string) error {
	at, err := openBelow(unix.AT_FDCWD, filepath.Dir(from), 0)
	if err != nil {
		return fmt.Errorf("cannot copy %s: %w", from, err)
	}
	defer at.Close()
	all := copier{bytes: 1 << 62, entries: 1 << 62}
	if err := all.copy(at, filepath.Base(from), to); err != nil {
		return fmt.Errorf("cannot copy %s: %w", from, err)
	}
	return nil
}

// copy copies an entry of a directory to a path that nobody else can reach. What users have removed
// meanwhile is skipped.
func (c *copier) copy(at *Dir, base, to string) error {
	entry, err := at.hold(base)
	if (errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrMounted)) && at.shared {
		return nil
	}
	if err != nil {
		return err
	}
	defer entry.Close()
	if c.entries--; c.entries < 0 {
		return errTooMuch
	}
	done, err := c.create(at, entry, to)
	if err == nil && done {
		err = copyAttributes(entry.path(), to, &entry.stat)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", base, err)
	}
	return nil
}

// create creates a copy of an open entry, without its attributes. It returns false if there is no
// copy of such an entry.
func (c *copier) create(at *Dir, entry *held, to string) (bool, error) {
	switch entry.stat.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return true, c.createDir(at, entry, to)
	case unix.S_IFREG:
		return true, c.createFile(entry, to)
	case unix.S_IFLNK:
		target, err := entry.target()
		if err != nil {
			return true, err
		}
		return true, os.Symlink(target, to)
	case unix.S_IFSOCK:
		return false, nil
	}
	if at.shared {
		return false, nil
	}
	return true, unix.Mknod(to, entry.stat.Mode, int(entry.stat.Rdev))
}

func (c *copier) createDir(at *Dir, entry *held, to string) error {
	from, err := openBelow(entry.fd, ".", 0)
	if err != nil {
		return err
	}
	defer from.Close()
	from.shared = from.shared || at.shared
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	return from.each(func(entry fs.DirEntry) error {
		return c.copy(from, entry.Name(), filepath.Join(to, entry.Name()))
	})
}

// createFile copies the content of a regular file, which cannot become another one: it is open.
func (c *copier) createFile(entry *held, to string) error {
	in, err := entry.open()
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(out, io.LimitReader(in, c.bytes+1))
	if c.bytes -= n; c.bytes < 0 && err == nil {
		err = errTooMuch
	}
	return errors.Join(err, out.Close())
}

// copyDirAttributes copies the attributes of a directory to another one.
func copyDirAttributes(from, to string) error {
	var st unix.Stat_t
	if err := unix.Lstat(from, &st); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	return copyAttributes(from, to, &st)
}

// copyAttributes copies, from the path of an open file or of a directory, owner, extended attributes, mode and times. The owner must be set
// before the mode, because chown clears the set-ID bits, and the times last.
func copyAttributes(from, to string, st *unix.Stat_t) error {
	if err := os.Lchown(to, int(st.Uid), int(st.Gid)); err != nil {
		return err
	}
	if err := copyXattrs(from, to); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK {
		if err := unix.Chmod(to, st.Mode&0o7777); err != nil {
			return err
		}
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, to, []unix.Timespec{st.Atim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
}

func copyXattrs(from, to string) error {
	names, err := readXattr(func(buffer []byte) (int, error) { return unix.Listxattr(from, buffer) })
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		if name == "" {
			continue
		}
		value, err := readXattr(func(buffer []byte) (int, error) { return unix.Getxattr(from, name, buffer) })
		if err == nil {
			err = unix.Lsetxattr(to, name, value, 0)
		}
		// tmpfs does not support user.* before Linux 6.6; libostree ignores them in /etc.
		if errors.Is(err, unix.EOPNOTSUPP) && strings.HasPrefix(name, "user.") {
			err = nil
		}
		if err != nil {
			return fmt.Errorf("attribute %s: %w", name, err)
		}
	}
	return nil
}

// maxXattr is the kernel's limit for a value and for a list of names, in bytes.
const maxXattr = 64 << 10

// readXattr calls read, a getxattr or listxattr call, with a buffer that is large enough. It
// returns nothing if the file system has no extended attributes.
func readXattr(read func([]byte) (int, error)) ([]byte, error) {
	buffer := make([]byte, maxXattr)
	n, err := read(buffer)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	return buffer[:max(n, 0)], err
}
