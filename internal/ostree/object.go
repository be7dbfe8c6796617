// Package ostree reads and writes objects and the bare repository of a host, and reads the
// host's deployments, boot entries and staged deployment. It does not use libostree, but can
// run alongside it: it takes the same locks, and writes every file as libostree does.
//
// The formats are those of libostree's ostree-core.h, ostree-core.c and
// ostree-repo-commit.c; tests compare the results with ostree's command line. Only
// repositories of mode bare are supported. Objects can also be read in the format of archive
// repositories.
package ostree

import (
	"encoding/hex"
	"fmt"
	"strings"

	"machine-pivot/internal/ostree/gvariant"
)

// Checksum is the SHA-256 that names an object.
type Checksum [32]byte

// ParseChecksum parses a checksum of 64 lower-case hexadecimal digits.
func ParseChecksum(s string) (Checksum, error) {
	var c Checksum
	if len(s) != 64 || strings.ToLower(s) != s {
		return c, fmt.Errorf("cannot parse checksum %q: not 64 lower-case hexadecimal digits", s)
	}
	if _, err := hex.Decode(c[:], []byte(s)); err != nil {
		return c, fmt.Errorf("cannot parse checksum %q: %w", s, err)
	}
	return c, nil
}

// String returns the checksum as 64 lower-case hexadecimal digits.
func (c Checksum) String() string { return hex.EncodeToString(c[:]) }

// checksumIn reads a checksum from a GVariant of type ay.
func checksumIn(v gvariant.Value) (Checksum, error) {
	raw := v.Bytes()
	if len(raw) != len(Checksum{}) {
		return Checksum{}, fmt.Errorf("a checksum has %d bytes", len(raw))
	}
	return Checksum(raw), nil
}

// ObjectType is the type of an object. The values are libostree's.
type ObjectType uint8

// The object types that occur in the commit of an image.
const (
	File       ObjectType = 1 // a regular file or symbolic link, with owner, mode and xattrs
	DirTree    ObjectType = 2 // the names in a directory
	DirMeta    ObjectType = 3 // owner, mode and xattrs of a directory
	Commit     ObjectType = 4
	CommitMeta ObjectType = 6 // detached metadata of a commit, such as signatures; not content addressed
)

// suffix returns the file name extension of an object in a bare repository.
func (t ObjectType) suffix() string {
	switch t {
	case File:
		return "file"
	case DirTree:
		return "dirtree"
	case DirMeta:
		return "dirmeta"
	case Commit:
		return "commit"
	case CommitMeta:
		return "commitmeta"
	}
	return fmt.Sprintf("type-%d", t)
}

// ObjectName identifies an object.
type ObjectName struct {
	Checksum Checksum
	Type     ObjectType
}

// String returns the name as CHECKSUM.TYPE, like libostree.
func (n ObjectName) String() string { return n.Checksum.String() + "." + n.Type.suffix() }

// path returns the object's path relative to objects/.
func (n ObjectName) path() string {
	path := make([]byte, 0, len("/.commitmeta")+2*len(n.Checksum))
	path = append(hex.AppendEncode(path, n.Checksum[:1]), '/')
	path = append(hex.AppendEncode(path, n.Checksum[1:]), '.')
	return string(append(path, n.Type.suffix()...))
}

// ParseLoosePath parses the path of an object relative to objects/. archive reports whether
// the file has the format of archive repositories (.filez).
func ParseLoosePath(path string) (name ObjectName, archive bool, err error) {
	base, suffix, _ := strings.Cut(path, ".")
	if len(base) != 65 || base[2] != '/' {
		return name, false, fmt.Errorf("cannot parse object path %q", path)
	}
	if name.Checksum, err = ParseChecksum(base[:2] + base[3:]); err != nil {
		return name, false, fmt.Errorf("cannot parse object path %q: %w", path, err)
	}
	if suffix == "filez" {
		name.Type = File
		return name, true, nil
	}
	for _, t := range []ObjectType{File, DirTree, DirMeta, Commit, CommitMeta} {
		if suffix == t.suffix() {
			name.Type = t
			return name, false, nil
		}
	}
	return name, false, fmt.Errorf("cannot parse object path %q: unknown type", path)
}

// CorruptError is the error for an object that is missing or malformed, or has content without the checksum in its
// name. One that is beyond a limit has guard.ErrTooMuch in its chain.
type CorruptError struct {
	Name ObjectName
	Err  error
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("object %s is corrupt: %v", e.Name, e.Err)
}

// Unwrap returns the reason.
func (e *CorruptError) Unwrap() error { return e.Err }

func corrupt(name ObjectName, format string, args ...any) error {
	return &CorruptError{Name: name, Err: fmt.Errorf(format, args...)}
}
