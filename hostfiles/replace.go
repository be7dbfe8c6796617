package hostfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace writes a whole file durably: the temporary file beside it is synced,
// renamed over the old one, and the directory is synced. At each moment a reader
// or a power cut finds the old content or the new, never a part. Not for
// directories that others read whole.
func Replace(path string, content []byte, mode fs.FileMode) (err error) {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, ".pivot-*")
	if err != nil {
		return fmt.Errorf("cannot replace %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("cannot replace %s: %w", path, err), tmp.Close(), os.Remove(tmp.Name()))
		}
	}()
	if _, err = tmp.Write(content); err != nil {
		return err
	}
	if err = tmp.Chmod(mode); err != nil {
		return err
	}
	if err = tmp.Sync(); err != nil {
		return err
	}
	if err = os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	return errors.Join(tmp.Close(), SyncDir(dir))
}

// Rename moves a file within its directory, durably.
func Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return fmt.Errorf("cannot rename %s: %w", from, err)
	}
	return SyncDir(filepath.Dir(to))
}

// SyncDir makes the entries of a directory durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("cannot sync directory: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("cannot sync directory %s: %w", dir, err)
	}
	return nil
}
