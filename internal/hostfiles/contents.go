package hostfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Contents is a content-addressed store of file contents, readable by root only: a directory
// with one file per content, named by its digest.
type Contents struct {
	Dir  string
	Disk Disk
}

// path returns the path of a content.
func (c Contents) path(d Digest) string { return filepath.Join(c.Dir, d.Hex()) }

// Keep stores a content durably. If the content is there already, Keep only makes its name
// durable: an earlier run may have been killed between the rename and the sync.
func (c Contents) Keep(content []byte) error {
	if err := MakeSecretDir(c.Disk, c.Dir); err != nil {
		return err
	}
	d := DigestOf(content)
	if _, err := c.Read(d); err == nil {
		return c.Disk.Sync(c.Dir)
	}
	return Replace(c.Disk, c.path(d), content, 0o600)
}

// Read reads a content. If it does not exist, or does not match its digest, the error is an
// fs.ErrNotExist.
func (c Contents) Read(d Digest) ([]byte, error) {
	content, err := readRegular(c.path(d), MaxState, unix.O_NOFOLLOW)
	if err != nil {
		return nil, fmt.Errorf("cannot read a file's content: %w", err)
	}
	if DigestOf(content) != d {
		return nil, fmt.Errorf("cannot read a file's content: %s is damaged: %w", d, fs.ErrNotExist)
	}
	return content, nil
}

// Release removes all contents that are not in named, and temporary files that a crash has left.
func (c Contents) Release(named []Digest) error {
	left, err := os.ReadDir(c.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, file := range left {
		if slices.Contains(named, Digest("sha256:"+file.Name())) {
			continue
		}
		err = errors.Join(err, c.Disk.Remove(filepath.Join(c.Dir, file.Name())))
	}
	// Sync even if nothing was removed: an earlier run may have been killed before the sync.
	return errors.Join(err, c.Disk.Sync(c.Dir))
}
