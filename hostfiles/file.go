// Package hostfiles puts files on the host: durably, whole or not at all, and
// never with a temporary file in a directory that other programs read whole
// (CRI-O loads every file of its drop-in directory).
package hostfiles

import (
	"bytes"
	"io/fs"
)

// File is a regular file as it shall be on the host.
type File struct {
	Path    string      `json:"path"` // absolute, clean
	Mode    fs.FileMode `json:"mode"` // permission bits only
	UID     int         `json:"uid"`
	GID     int         `json:"gid"`
	Content []byte      `json:"content"`
}

// Equal reports whether both are the same file: path, owner, mode and content.
func (f File) Equal(other File) bool {
	return f.Path == other.Path && f.Mode == other.Mode &&
		f.UID == other.UID && f.GID == other.GID && bytes.Equal(f.Content, other.Content)
}
