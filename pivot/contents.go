package pivot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
)

// The journal is for everybody to read, and a file of the target may hold what
// only root may read. So the journal has digests, which suffice to prove what
// runs. Contents that a later attempt could not read again are in a directory
// beside it: one file for each, named by its digest, which only root can read.

// contents are those that are kept.
func (j Journal) contents() hostfiles.Contents {
	return hostfiles.Contents{Dir: filepath.Join(filepath.Dir(j.Path), "contents"), Disk: j.Disk}
}

// Store keeps a content durably, until a record is saved that does not name it.
func (j Journal) Store(content []byte) error {
	if err := j.contents().Keep(content); err != nil {
		return fault.New(fault.CannotWrite, "cannot keep a file's content: %w", err)
	}
	return nil
}

// Content is a content that the journal names; fs.ErrNotExist if it is not kept.
func (j Journal) Content(d hostfiles.Digest) ([]byte, error) {
	content, err := j.contents().Read(d)
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

// release removes the contents that are not named, and what a crash left.
func (j Journal) release(named []hostfiles.Digest) error {
	if err := j.contents().Release(named); err != nil {
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
