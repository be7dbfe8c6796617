// Package hostfiles reads and writes directory entries on the host (files, directories,
// symbolic links). Entries are written durably and atomically, and without a temporary
// file in a directory of which other programs read all files (CRI-O loads every file in
// its drop-in directory). A Watcher tells of changes. Files have SELinux labels, and RunningPolicy says which ones it knows.
package hostfiles

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"strconv"
	"strings"
)

// Kind is the type of an entry.
type Kind string

const (
	KindFile      Kind = ""          // a regular file
	KindDirectory Kind = "directory" // mode and owner of a directory; its contents are separate entries
	KindLink      Kind = "link"      // a symbolic link
	// KindDefault requests what the image has at a path, which may be nothing. It removes an
	// entry: if the entry had replaced one of the image, that one is restored.
	KindDefault Kind = "default"
	// KindAbsent requests that nothing exists at a path, even if the image has something there.
	KindAbsent Kind = "absent"
	// KindPassword is a user's password: its content is the hash. See PasswordPath.
	KindPassword Kind = "password"
	KindOther    Kind = "other" // a device, a FIFO or a socket; only found, never requested
)

// String returns a readable name of the kind.
func (k Kind) String() string {
	if k == KindFile {
		return "file"
	}
	return string(k)
}

// Type returns the type of an entry as in a mode.
func (k Kind) Type() fs.FileMode {
	return map[Kind]fs.FileMode{KindDirectory: fs.ModeDir, KindLink: fs.ModeSymlink}[k]
}

// Entry describes the existing or requested directory entry at a path, except for a file's
// content, which may be secret. Entries can be compared with ==.
type Entry struct {
	Kind Kind        `json:"kind,omitempty"`
	Path string      `json:"path"` // absolute, clean
	Mode fs.FileMode `json:"mode"` // mode bits as in chmod(2), up to 07777; 0 for a link
	UID  int         `json:"uid"`
	GID  int         `json:"gid"`
	// User and Group take precedence over UID and GID if they are not "". They are names in
	// the system for which the entry is requested. Existing entries do not have them.
	User   string `json:"user,omitempty"`
	Group  string `json:"group,omitempty"`
	Digest Digest `json:"digest,omitempty"` // of a file's content
	Target string `json:"target,omitempty"` // of a symbolic link
}

// String returns a readable description of the entry with its mode and owner.
func (e Entry) String() string {
	if e.Kind == KindPassword {
		return e.Name()
	}
	owner, group := cmp.Or(e.User, strconv.Itoa(e.UID)), cmp.Or(e.Group, strconv.Itoa(e.GID))
	text := e.Kind.String() + " with mode 0" + strconv.FormatUint(uint64(e.Mode), 8) + " and owner " + owner + ":" + group
	if e.Kind == KindLink {
		text += " to " + e.Target
	}
	return text
}

// Name returns a readable name of the entry: its kind and path.
func (e Entry) Name() string {
	if user := passwordOf(e.Path); user != "" {
		return "password of " + user
	}
	if e.Removes() {
		return "entry " + e.Path
	}
	return e.Kind.String() + " " + e.Path
}

// Named reports whether the user or group is given by name.
func (e Entry) Named() bool { return e.User != "" || e.Group != "" }

// MetBy reports whether an existing entry is the requested one. If a link is requested with owner root, any owner is
// accepted. The owner of a link grants no rights, and Ignition gives a link without a configured owner the owner of its
// target (SetPermissions in its internal/exec/util/file.go).
func (e Entry) MetBy(have Entry) bool {
	if e.Kind == KindLink && e.UID == 0 && e.GID == 0 {
		have.UID, have.GID = 0, 0
	}
	return e == have
}

// Keeps marks attributes of an entry that are not requested: a new entry gets the values in
// Entry, an existing one keeps its own.
type Keeps struct{ Mode, User, Group bool }

// Of returns the requested entry with the kept attributes of the existing entry at its path.
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

// File is an entry with its content, which only regular files and passwords have. It must not
// be encoded as JSON where others can read it; encode its Entry instead.
type File struct {
	Entry
	Content []byte `json:"content,omitempty"`
}

// NewFile returns a regular file owned by root.
func NewFile(path string, mode fs.FileMode, content []byte) File {
	return File{Entry: Entry{Path: path, Mode: mode, Digest: DigestOf(content)}, Content: content}
}

// NewDirectory returns a directory owned by root.
func NewDirectory(path string, mode fs.FileMode) File {
	return File{Entry: Entry{Kind: KindDirectory, Path: path, Mode: mode}}
}

// NewLink returns a symbolic link owned by root.
func NewLink(path, target string) File {
	return File{Entry: Entry{Kind: KindLink, Path: path, Target: target}}
}

// Default returns an entry of KindDefault.
func Default(path string) File { return File{Entry: Entry{Kind: KindDefault, Path: path}} }

// Absent returns an entry of KindAbsent.
func Absent(path string) File { return File{Entry: Entry{Kind: KindAbsent, Path: path}} }

// Removes reports whether the entry requests a removal (KindDefault or KindAbsent).
func (e Entry) Removes() bool { return e.Kind == KindDefault || e.Kind == KindAbsent }

// Entries returns the entries of files, without their contents.
func Entries(files []File) []Entry {
	entries := make([]Entry, len(files))
	for i, f := range files {
		entries[i] = f.Entry
	}
	return entries
}

// Paths returns the paths of files.
func Paths(files []File) map[string]bool {
	paths := map[string]bool{}
	for _, f := range files {
		paths[f.Path] = true
	}
	return paths
}

// ModeOf returns the mode bits (07777) of a kernel mode, in the kernel's encoding instead of
// Go's.
func ModeOf(mode uint32) fs.FileMode { return fs.FileMode(mode & 0o7777) }

// Digest is a content's SHA-256: "sha256:" and 64 hexadecimal digits.
type Digest string

// Hex returns only the digits, which name a file with the content.
func (d Digest) Hex() string { return strings.TrimPrefix(string(d), "sha256:") }

// DigestOf returns the digest of a content.
func DigestOf(content []byte) Digest {
	sum := sha256.Sum256(content)
	return Digest("sha256:" + hex.EncodeToString(sum[:]))
}
