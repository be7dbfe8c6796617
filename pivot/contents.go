package pivot

import (
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

// Store keeps content durably until Save writes a content that does not name it.
func (j Journal) Store(content []byte) error {
	if err := j.contents().Keep(content); err != nil {
		return fault.New(fault.CannotWrite, "cannot keep a file's content: %w", err)
	}
	return nil
}

// Content returns the content with digest d. The error wraps fs.ErrNotExist if it is not kept.
func (j Journal) Content(d hostfiles.Digest) ([]byte, error) {
	return j.contents().Read(d)
}

// release removes all contents except the named ones, and leftovers of a crash.
func (j Journal) release(named []hostfiles.Digest) error {
	if err := j.contents().Release(named); err != nil {
		return fault.New(fault.CannotWrite, "cannot remove contents that are not needed: %w", err)
	}
	return nil
}
