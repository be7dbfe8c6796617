package pivot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
)

// The journal is for everybody to read, and a file of the target may hold what
// only root may read. So the journal has digests, which suffice to prove what
// runs. Contents that a later attempt could not read again are in a directory
// beside it: one file for each, named by its digest, which only root can read.

// contentsDir is the directory of contents.
func (j Journal) contentsDir() string { return filepath.Join(filepath.Dir(j.Path), "contents") }

func (j Journal) contentPath(d hostfiles.Digest) string {
	return filepath.Join(j.contentsDir(), strings.TrimPrefix(string(d), "sha256:"))
}

// Store keeps a content durably, until a record is saved that does not name it.
func (j Journal) Store(content []byte) error {
	d := hostfiles.DigestOf(content)
	if _, err := j.stored(d); err == nil {
		return nil
	}
	err := hostfiles.MakeDir(j.Disk, filepath.Dir(j.Path), 0o755)
	if err == nil {
		err = hostfiles.MakeDir(j.Disk, j.contentsDir(), 0o700)
	}
	if err == nil {
		err = hostfiles.Replace(j.Disk, j.contentPath(d), content, 0o600)
	}
	if err != nil {
		return fault.New(fault.CannotWrite, "cannot keep a file's content: %w", err)
	}
	return nil
}

// Content is a content that the journal names; fs.ErrNotExist if it is not kept.
func (j Journal) Content(d hostfiles.Digest) ([]byte, error) {
	content, err := j.stored(d)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return content, err
	}
	data, err := os.ReadFile(j.Path)
	if err != nil {
		return nil, fmt.Errorf("cannot read a file's content: %w", err)
	}
	if old, ok := contentsOf(data)[d]; ok {
		return old, nil
	}
	return nil, fmt.Errorf("cannot read a file's content: %s is not kept: %w", d, fs.ErrNotExist)
}

// stored reads from the directory of contents. What does not have its digest is
// not there.
func (j Journal) stored(d hostfiles.Digest) ([]byte, error) {
	content, err := os.ReadFile(j.contentPath(d))
	if err != nil {
		return nil, fmt.Errorf("cannot read a file's content: %w", err)
	}
	if hostfiles.DigestOf(content) != d {
		return nil, fmt.Errorf("cannot read a file's content: %s is damaged: %w", d, fs.ErrNotExist)
	}
	return content, nil
}

// release removes the contents that are not named, and what a crash left.
func (j Journal) release(named []hostfiles.Digest) error {
	left, err := os.ReadDir(j.contentsDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, file := range left {
		if slices.Contains(named, hostfiles.Digest("sha256:"+file.Name())) {
			continue
		}
		err = errors.Join(err, j.Disk.Remove(filepath.Join(j.contentsDir(), file.Name())))
	}
	// Also if nothing had to go: an earlier run may have been killed before this.
	if err = errors.Join(err, j.Disk.Sync(j.contentsDir())); err != nil {
		return fault.New(fault.CannotWrite, "cannot remove contents that are not needed: %w", err)
	}
	return nil
}

// oldRecord is what differs in a journal of format 1: the target's files have
// their contents.
type oldRecord struct {
	Target struct {
		Files []struct {
			Content []byte `json:"content"`
		} `json:"files"`
	} `json:"target"`
}

// upgrade gives the files of a record that was read from a journal of format 1
// their digests.
func (r *Record) upgrade(data []byte) error {
	var old oldRecord
	if err := json.Unmarshal(data, &old); err != nil {
		return err
	}
	for i, f := range old.Target.Files {
		r.Target.Entries[i].Digest = hostfiles.DigestOf(f.Content)
	}
	r.Format = formatVersion
	return nil
}

// contentsOf are the contents in a journal of format 1; one of a later format has none.
func contentsOf(data []byte) map[hostfiles.Digest][]byte {
	var old oldRecord
	if err := json.Unmarshal(data, &old); err != nil {
		return nil // Load tells
	}
	contents := map[hostfiles.Digest][]byte{}
	for _, f := range old.Target.Files {
		contents[hostfiles.DigestOf(f.Content)] = f.Content
	}
	return contents
}
