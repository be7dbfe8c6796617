package hostfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Contents is a directory of contents of files, which only root can read: one file for
// each, named by its digest.
type Contents struct {
	Dir  string
	Disk Disk
}

// path is that of a content.
func (c Contents) path(d Digest) string {
	return filepath.Join(c.Dir, strings.TrimPrefix(string(d), "sha256:"))
}

// Keep keeps a content durably.
func (c Contents) Keep(content []byte) error {
	d := DigestOf(content)
	if _, err := c.Read(d); err == nil {
		return nil
	}
	err := MakeDir(c.Disk, filepath.Dir(c.Dir), 0o755)
	if err == nil {
		err = MakeDir(c.Disk, c.Dir, 0o700)
	}
	if err == nil {
		err = Replace(c.Disk, c.path(d), content, 0o600)
	}
	return err
}

// Read reads a content. One that does not have its digest is not there.
func (c Contents) Read(d Digest) ([]byte, error) {
	content, err := os.ReadFile(c.path(d))
	if err != nil {
		return nil, fmt.Errorf("cannot read a file's content: %w", err)
	}
	if DigestOf(content) != d {
		return nil, fmt.Errorf("cannot read a file's content: %s is damaged: %w", d, fs.ErrNotExist)
	}
	return content, nil
}

// Release removes the contents that are not named, and what a crash left.
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
	// Also if nothing had to go: an earlier run may have been killed before this.
	return errors.Join(err, c.Disk.Sync(c.Dir))
}
