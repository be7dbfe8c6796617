package hostfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Replace writes a file atomically and durably: it writes and syncs a temporary
// file in the same directory, renames it over the old file, and syncs the directory.
// Readers, and the system after a power cut, find either the old content or the new.
// Do not use Replace in a directory of which other programs read all files. Callers
// must not write the same file concurrently.
func Replace(disk Disk, path string, content []byte, mode fs.FileMode) error {
	return renameInto(disk, path, func(tmp string) error { return disk.Write(tmp, content, mode) })
}

// Put writes a file at its path below root, atomically and durably like Replace, with an SELinux
// label: that which the policy has for the path. The kernel's choice, for "", would depend on the
// label of this program.
func Put(disk Disk, root string, f File, label string) error {
	return renameInto(disk, filepath.Join(root, f.Path), func(tmp string) error {
		if err := disk.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return disk.Make(tmp, f, label)
	})
}

// Remove removes a file, if there is one, durably, and what a killed Replace or Put has left.
func Remove(disk Disk, path string) error {
	err := removeIfThere(disk, temporaryOf(path))
	if err == nil {
		err = removeIfThere(disk, path)
	}
	if err == nil {
		err = syncParent(disk, path)
	}
	return err
}

// RemoveLeftover removes what a killed Replace or Put of a path has left beside it, but not durably.
func RemoveLeftover(disk Disk, path string) error { return removeIfThere(disk, temporaryOf(path)) }

// renameInto calls write with a temporary path, syncs the file, and renames it to path.
func renameInto(disk Disk, path string, write func(tmp string) error) error {
	tmp := temporaryOf(path)
	err := write(tmp)
	if err == nil {
		err = disk.Sync(tmp)
	}
	if err == nil {
		err = disk.Rename(tmp, path)
	}
	if err != nil {
		if rerr := disk.Remove(tmp); !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
		return fmt.Errorf("cannot replace %s: %w", path, err)
	}
	return syncParent(disk, path)
}

// temporaryOf returns the name under which the new content of a file is written. It is fixed, so that
// the next attempt overwrites a file left by a crash.
func temporaryOf(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
}

// Rename moves a file within its directory, durably.
func Rename(disk Disk, from, to string) error {
	if err := disk.Rename(from, to); err != nil {
		return fmt.Errorf("cannot rename %s: %w", from, err)
	}
	return syncParent(disk, to)
}

// MakeDir creates a directory and its missing parents durably, since a file is only as
// durable as the names of its directories. It also syncs the parent of a directory that
// exists already, because the process that created it may have been killed before its sync.
func MakeDir(disk Disk, path string, mode fs.FileMode) error {
	if _, err := os.Stat(path); err == nil {
		return syncParent(disk, path)
	}
	if err := MakeDir(disk, filepath.Dir(path), mode); err != nil {
		return err
	}
	if err := disk.Mkdir(path, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("cannot make directory: %w", err)
	}
	return syncParent(disk, path)
}

// MakeSecretDir creates a directory that only root can read, and its missing parents, durably.
func MakeSecretDir(disk Disk, path string) error {
	err := MakeDir(disk, filepath.Dir(path), 0o755)
	if err == nil {
		err = MakeDir(disk, path, 0o700)
	}
	return err
}

// CheckWritable returns an error if a directory is not writable, most likely because its file
// system is read-only. If the directory does not exist, CheckWritable checks its nearest
// existing parent. It writes nothing.
func CheckWritable(dir string) error {
	err := unix.Access(dir, unix.W_OK)
	if errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
		return CheckWritable(filepath.Dir(dir))
	}
	if err != nil {
		return fmt.Errorf("nothing can be made in its directory: %w", err)
	}
	return nil
}

// syncParent makes the name of a file durable by syncing its directory.
func syncParent(disk Disk, path string) error {
	if err := disk.Sync(filepath.Dir(path)); err != nil {
		return fmt.Errorf("cannot sync directory: %w", err)
	}
	return nil
}
