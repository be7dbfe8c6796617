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

// copyTree copies a file, or a directory with everything in it, to a new path: contents,
// symbolic links, owners, modes, times, and extended attributes including SELinux labels.
// It skips sockets.
func copyTree(from, to string) error {
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		return copyOne(path, filepath.Join(to, rel))
	})
	if err != nil {
		return fmt.Errorf("cannot copy %s: %w", from, err)
	}
	return nil
}

func copyOne(from, to string) error {
	var st unix.Stat_t
	if err := unix.Lstat(from, &st); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	var err error
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		err = os.Mkdir(to, 0o700)
	case unix.S_IFREG:
		err = copyContent(from, to)
	case unix.S_IFLNK:
		var target string
		if target, err = os.Readlink(from); err == nil {
			err = os.Symlink(target, to)
		}
	case unix.S_IFSOCK:
		return nil
	default:
		err = unix.Mknod(to, st.Mode, int(st.Rdev))
	}
	if err == nil {
		err = copyAttributes(from, to, &st)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	return nil
}

func copyContent(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
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

// copyAttributes copies owner, extended attributes, mode and times. The owner must be set
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
	names, err := readXattr(func(buffer []byte) (int, error) { return unix.Llistxattr(from, buffer) })
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		if name == "" {
			continue
		}
		value, err := readXattr(func(buffer []byte) (int, error) { return unix.Lgetxattr(from, name, buffer) })
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
