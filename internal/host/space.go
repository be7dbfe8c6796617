package host

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// free returns the bytes that the file system at path has available to ordinary users.
func free(path string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, fmt.Errorf("cannot look at the file system of %s: %w", path, err)
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}

// SameFileSystem reports whether two files are on the same file system, and so share its free space. The paths are this
// process's.
func SameFileSystem(a, b string) (bool, error) {
	var first, second unix.Stat_t
	if err := errors.Join(unix.Stat(a, &first), unix.Stat(b, &second)); err != nil {
		return false, fmt.Errorf("cannot tell whether %s and %s are on one file system: %w", a, b, err)
	}
	return first.Dev == second.Dev, nil
}
