package host

import (
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
