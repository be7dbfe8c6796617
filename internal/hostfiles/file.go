// Package hostfiles puts files on the host: durably, whole or not at all, and
// never with a temporary file in a directory that other programs read whole
// (CRI-O loads every file of its drop-in directory).
package hostfiles

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
)

// File is a regular file as it shall be on the host. It has no JSON form: where
// others can read, an Entry stands for it.
type File struct {
	Path    string      // absolute, clean
	Mode    fs.FileMode // permission bits only
	UID     int
	GID     int
	Content []byte
}

// Equal reports whether both are the same file: path, owner, mode and content.
func (f File) Equal(other File) bool {
	return f.Path == other.Path && f.Mode == other.Mode &&
		f.UID == other.UID && f.GID == other.GID && bytes.Equal(f.Content, other.Content)
}

// Entry is the file without its content, which may be secret: enough to compare
// what a host has with what it shall have.
func (f File) Entry() Entry {
	return Entry{Path: f.Path, Mode: f.Mode, UID: f.UID, GID: f.GID, Digest: DigestOf(f.Content)}
}

// Entry is what stands at a path: everything about a file but its content. Two
// entries are the same file if they are equal.
type Entry struct {
	Path   string      `json:"path"` // absolute, clean
	Mode   fs.FileMode `json:"mode"` // permission bits only
	UID    int         `json:"uid"`
	GID    int         `json:"gid"`
	Digest Digest      `json:"digest"` // of the content
}

// Entries are those of files.
func Entries(files []File) []Entry {
	entries := make([]Entry, len(files))
	for i, f := range files {
		entries[i] = f.Entry()
	}
	return entries
}

// Digest is a content's SHA-256: "sha256:" and 64 hexadecimal digits.
type Digest string

// DigestOf is the digest of a content.
func DigestOf(content []byte) Digest {
	sum := sha256.Sum256(content)
	return Digest("sha256:" + hex.EncodeToString(sum[:]))
}
