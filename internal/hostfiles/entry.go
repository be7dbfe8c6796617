// Package hostfiles puts entries of directories on the host (files, directories,
// symbolic links): durably, whole or not at all, and never with a temporary file in a
// directory that other programs read whole (CRI-O loads every file of its drop-in
// directory).
package hostfiles

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"strconv"
)

// Kind is what an entry is.
type Kind string

const (
	KindFile      Kind = ""          // a regular file
	KindDirectory Kind = "directory" // its own mode and owner; what is in it are other entries
	KindLink      Kind = "link"      // a symbolic link
	// KindDefault asks for what the image has at a path: its own file, or nothing. It is
	// how an entry is removed: where it stood in place of the image's, that shows again.
	KindDefault Kind = "default"
	// KindAbsent asks for nothing at a path, though the image may have something there.
	KindAbsent Kind = "absent"
	// KindPassword is a user's password: its content is the hash. See PasswordPath.
	KindPassword Kind = "password"
	KindOther    Kind = "other" // nobody can ask for it: a device, a fifo, a socket
)

// String is the kind's name for people.
func (k Kind) String() string {
	if k == KindFile {
		return "file"
	}
	return string(k)
}

// Entry is what stands at a path, or shall stand there: everything about it but a
// file's content, which may be secret. Two entries are the same if they are equal.
type Entry struct {
	Kind Kind        `json:"kind,omitempty"`
	Path string      `json:"path"` // absolute, clean
	Mode fs.FileMode `json:"mode"` // permission bits, in their places of chmod(2); 0 of a link
	UID  int         `json:"uid"`
	GID  int         `json:"gid"`
	// User and Group go before UID and GID if they are not "". They are names in the
	// system that the entry shall be in, and are never in an entry that stands somewhere.
	User   string `json:"user,omitempty"`
	Group  string `json:"group,omitempty"`
	Digest Digest `json:"digest,omitempty"` // of a file's content
	Target string `json:"target,omitempty"` // of a symbolic link
}

// String says what the entry is and whose, for people.
func (e Entry) String() string {
	if e.Kind == KindPassword {
		return e.Name()
	}
	owner, group := e.User, e.Group
	if owner == "" {
		owner = strconv.Itoa(e.UID)
	}
	if group == "" {
		group = strconv.Itoa(e.GID)
	}
	text := e.Kind.String() + " with mode 0" + strconv.FormatUint(uint64(e.Mode), 8) + " and owner " + owner + ":" + group
	if e.Kind == KindLink {
		text += " to " + e.Target
	}
	return text
}

// Name is what the entry is and where, for people.
func (e Entry) Name() string {
	if user := passwordOf(e.Path); user != "" {
		return "password of " + user
	}
	if e.Removes() {
		return "entry " + e.Path
	}
	return e.Kind.String() + " " + e.Path
}

// Named reports whether an owner is given by its name.
func (e Entry) Named() bool { return e.User != "" || e.Group != "" }

// MetBy reports whether what stands somewhere is what the entry asks for. A link of root's may
// be anybody's: its owner gives nobody a right, and Ignition gives a link for which no owner
// is asked that of what it points at (SetPermissions in its internal/exec/util/file.go).
func (e Entry) MetBy(have Entry) bool {
	if e.Kind == KindLink && e.UID == 0 && e.GID == 0 {
		have.UID, have.GID = 0, 0
	}
	return e == have
}

// Keeps are attributes of an entry for which nothing is asked: one that is made has the entry's,
// one that is there keeps its own.
type Keeps struct{ Mode, User, Group bool }

// Of is an entry with what it keeps of the one that stands at its path.
func (k Keeps) Of(have, want Entry) Entry {
	if k.Mode {
		want.Mode = have.Mode
	}
	if k.User {
		want.UID = have.UID
	}
	if k.Group {
		want.GID = have.GID
	}
	return want
}

// File is an entry with its content, which only a regular file has. It has no JSON
// form: where others can read, its Entry stands for it.
type File struct {
	Entry
	Content []byte
}

// NewFile is a regular file of root's.
func NewFile(path string, mode fs.FileMode, content []byte) File {
	return File{Entry: Entry{Path: path, Mode: mode, Digest: DigestOf(content)}, Content: content}
}

// NewDirectory is a directory of root's.
func NewDirectory(path string, mode fs.FileMode) File {
	return File{Entry: Entry{Kind: KindDirectory, Path: path, Mode: mode}}
}

// NewLink is a symbolic link of root's.
func NewLink(path, target string) File {
	return File{Entry: Entry{Kind: KindLink, Path: path, Target: target}}
}

// Default asks for what the image has at a path.
func Default(path string) File { return File{Entry: Entry{Kind: KindDefault, Path: path}} }

// Absent asks for nothing at a path.
func Absent(path string) File { return File{Entry: Entry{Kind: KindAbsent, Path: path}} }

// Removes reports whether the entry asks for less rather than for something.
func (e Entry) Removes() bool { return e.Kind == KindDefault || e.Kind == KindAbsent }

// Entries are those of files, without their contents.
func Entries(files []File) []Entry {
	entries := make([]Entry, len(files))
	for i, f := range files {
		entries[i] = f.Entry
	}
	return entries
}

// ModeOf are the permission bits of a mode as the kernel has it.
func ModeOf(mode uint32) fs.FileMode { return fs.FileMode(mode & 0o7777) }

// Digest is a content's SHA-256: "sha256:" and 64 hexadecimal digits.
type Digest string

// DigestOf is the digest of a content.
func DigestOf(content []byte) Digest {
	sum := sha256.Sum256(content)
	return Digest("sha256:" + hex.EncodeToString(sum[:]))
}
