package host

import (
	"errors"
	"fmt"
	"math"

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

// Space is the room of a file system.
type Space struct {
	Block  int64 // size of a block, in bytes: a file takes a multiple
	Free   int64 // in bytes, as for ordinary users: ext4 keeps some of the rest for itself
	Inodes int64 // number of files and directories that can be made
}

// SpaceAt returns the room of the file system at a path of this process.
func SpaceAt(path string) (Space, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Space{}, fmt.Errorf("cannot look at the file system of %s: %w", path, err)
	}
	s := Space{Block: max(int64(st.Bsize), 512), Free: int64(st.Bavail) * int64(st.Bsize), Inodes: int64(st.Ffree)}
	if st.Files == 0 { // it has as many as fit
		s.Inodes = math.MaxInt64
	}
	return s, nil
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
