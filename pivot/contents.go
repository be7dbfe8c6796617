package pivot

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
)

// The journal is world-readable, but the target's files may hold secrets. So the journal has
// only their digests, which suffice to verify the running system. Contents that a later attempt
// could not read again are kept in a directory beside the journal: one file per content, named
// by its digest and readable only by root.

// contents returns the store of the kept contents.
func (j Journal) contents() hostfiles.Contents {
	return hostfiles.Contents{Dir: filepath.Join(filepath.Dir(j.Path), "contents"), Disk: j.Disk}
}

// Store keeps content durably until Save writes a record that does not name it.
func (j Journal) Store(content []byte) error {
	if err := j.contents().Keep(content); err != nil {
		return fault.New(fault.CannotWrite, "cannot keep a file's content: %w", err)
	}
	return nil
}

// Content returns the content with digest d. The error wraps fs.ErrNotExist if it is not kept.
func (j Journal) Content(d hostfiles.Digest) ([]byte, error) {
	content, err := j.contents().Read(d)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return content, err
	}
	data, err := j.file().Read()
	if err != nil {
		return nil, fmt.Errorf("cannot read a file's content: %w", err)
	}
	if old, ok := contentsOf(data)[d]; ok {
		return old, nil
	}
	return nil, fmt.Errorf("cannot read a file's content: %s is not kept: %w", d, fs.ErrNotExist)
}

// release removes all contents except the named ones, and leftovers of a crash.
func (j Journal) release(named []hostfiles.Digest) error {
	if err := j.contents().Release(named); err != nil {
		return fault.New(fault.CannotWrite, "cannot remove contents that are not needed: %w", err)
	}
	return nil
}

// oldRecord is the part of a record that differs in format 1: the target's files include their
// contents.
type oldRecord struct {
	Target struct {
		Files []struct {
			Content []byte `json:"content"`
		} `json:"files"`
	} `json:"target"`
}

// upgrade sets the digests of the target's files in a record read from data, a journal of
// format 1.
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

// contentsOf returns the contents in a journal of format 1. A later format has none.
func contentsOf(data []byte) map[hostfiles.Digest][]byte {
	var old oldRecord
	if err := json.Unmarshal(data, &old); err != nil {
		return nil // Load reports the error
	}
	contents := map[hostfiles.Digest][]byte{}
	for _, f := range old.Target.Files {
		contents[hostfiles.DigestOf(f.Content)] = f.Content
	}
	return contents
}
