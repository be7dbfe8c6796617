// Package ostree reads and writes objects and the bare repository of a host, and reads its
// deployments, boot entries and staged state. It does not use libostree, but can run
// beside it: it takes the same locks, and writes every file as libostree would.
//
// Sources: libostree's ostree-core.h, ostree-core.c and ostree-repo-commit.c for the
// formats, checked against its command line. Limits: the only repository mode is bare;
// objects are also read in the form that archive repositories have.
package ostree

import (
	"encoding/hex"
	"fmt"
	"strings"

	"machine-pivot/internal/ostree/gvariant"
)

// Checksum is the SHA-256 that names an object.
type Checksum [32]byte

// ParseChecksum reads 64 lower-case hexadecimal digits.
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

// String is the checksum as 64 hexadecimal digits.
func (c Checksum) String() string { return hex.EncodeToString(c[:]) }

// checksumIn reads a checksum from an ay.
func checksumIn(v gvariant.Value) (Checksum, error) {
	raw := v.Bytes()
	if len(raw) != len(Checksum{}) {
		return Checksum{}, fmt.Errorf("a checksum has %d bytes", len(raw))
	}
	return Checksum(raw), nil
}

// ObjectType is the kind of an object, with libostree's numbers.
type ObjectType uint8

// The types of objects that an image's commit is made of.
const (
	File       ObjectType = 1 // a regular file or symbolic link, with owner, mode and xattrs
	DirTree    ObjectType = 2 // the names in a directory
	DirMeta    ObjectType = 3 // owner, mode and xattrs of a directory
	Commit     ObjectType = 4
	CommitMeta ObjectType = 6 // detached metadata of a commit, such as signatures; not content addressed
)

// suffix is the ending of an object's file name in a bare repository.
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

// ObjectName names an object.
type ObjectName struct {
	Checksum Checksum
	Type     ObjectType
}

// String is CHECKSUM.TYPE, as libostree prints it.
func (n ObjectName) String() string { return n.Checksum.String() + "." + n.Type.suffix() }

// path is the object's path below objects/.
func (n ObjectName) path() string {
	path := make([]byte, 0, len("/.commitmeta")+2*len(n.Checksum))
	path = append(hex.AppendEncode(path, n.Checksum[:1]), '/')
	path = append(hex.AppendEncode(path, n.Checksum[1:]), '.')
	return string(append(path, n.Type.suffix()...))
}

// ParseLoosePath reads the path of an object below objects/. archive says that the file has
// the form of archive repositories (.filez).
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

// CorruptError is the error of an object that is missing, malformed, or has another checksum
// than its name.
type CorruptError struct {
	Name   ObjectName
	Reason string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("object %s is corrupt: %s", e.Name, e.Reason)
}

func corrupt(name ObjectName, format string, args ...any) error {
	return &CorruptError{Name: name, Reason: fmt.Sprintf(format, args...)}
}
