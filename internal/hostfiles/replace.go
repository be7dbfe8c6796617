package hostfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Replace writes a whole file durably: the temporary file beside it is synced,
// renamed over the old one, and the directory is synced. At each moment a reader
// or a power cut finds the old content or the new, never a part. Not for
// directories that others read whole. Callers see to it that there is one
// writer at a time.
func Replace(disk Disk, path string, content []byte, mode fs.FileMode) error {
	return renameInto(disk, path, func(tmp string) error { return disk.Write(tmp, content, mode) })
}

// Put makes a file the one at its path below root, as Replace does it, with the SELinux label
// that the policy has for that place. The kernel's own choice goes by the program that makes it.
func Put(disk Disk, root string, f File, labels Labels) error {
	label, err := labels.Of(f.Entry)
	if err != nil {
		return err
	}
	return renameInto(disk, filepath.Join(root, f.Path), func(tmp string) error {
		if err := disk.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return disk.Make(tmp, f, label)
	})
}

// renameInto makes what write makes, under a name of its own, what stands at a path.
func renameInto(disk Disk, path string, write func(tmp string) error) error {
	// One name, so that what a crash leaves is overwritten the next time.
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
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

// Rename moves a file within its directory, durably.
func Rename(disk Disk, from, to string) error {
	if err := disk.Rename(from, to); err != nil {
		return fmt.Errorf("cannot rename %s: %w", from, err)
	}
	return syncParent(disk, to)
}

// MakeDir makes a directory and what is missing of those above it, durably: a
// file in it is only as durable as its name and theirs. That of one that is there is made so
// too: who made it may have been killed before that.
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

// CheckWritable is an error if nothing can be made in a directory, or, where that is
// not there, in the one that it would be made in: most likely its file system is
// read-only. Nothing is written.
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

// syncParent makes the name of a file durable.
func syncParent(disk Disk, path string) error {
	if err := disk.Sync(filepath.Dir(path)); err != nil {
		return fmt.Errorf("cannot sync directory: %w", err)
	}
	return nil
}
