package hostfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ReplaceNamed is Replace for a file that a user names. It is as if the user's own program had written into the file: a
// link stays, and what it leads to is replaced. The file keeps its owner and its mode; and what is no regular file,
// such as a pipe or a device, is refused. A new file gets mode. If nobody but the owner may read that, nobody may read
// a file that was there either.
func ReplaceNamed(disk Disk, name string, content []byte, mode fs.FileMode) error {
	at, was, err := named(name)
	if err != nil {
		return fmt.Errorf("cannot replace %s: %w", name, err)
	}
	if was == nil {
		return Replace(disk, at, content, mode)
	}
	f := NewFile(at, ModeOf(was.Mode), content)
	f.UID, f.GID = int(was.Uid), int(was.Gid)
	if mode&0o077 == 0 {
		f.Mode &^= 0o077
	}
	return Put(disk, "/", f, "")
}

// CheckNamed returns an error if ReplaceNamed would refuse a file. It writes nothing.
func CheckNamed(name string) error {
	if _, _, err := named(name); err != nil {
		return fmt.Errorf("cannot replace %s: %w", name, err)
	}
	return nil
}

// named follows the links at a name. It returns the path that is left, and the file there; nil if there is none yet.
func named(name string) (at string, was *unix.Stat_t, err error) {
	whole, err := filepath.Abs(name)
	if err != nil {
		return "", nil, err
	}
	at, lacks, err := resolveIn("/", whole)
	if errors.Is(err, fs.ErrNotExist) {
		return lacks, nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	var st unix.Stat_t
	if err := unix.Lstat(at, &st); err != nil {
		return "", nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return "", nil, ErrNotRegular
	}
	return at, &st, nil
}
