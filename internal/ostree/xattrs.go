package ostree

import (
	"bytes"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/ostree/gvariant"
)

// The kernel's limits for extended attributes, in bytes (linux/limits.h). A file system may
// allow less.
const (
	maxXattrName  = 255
	maxXattrValue = 64 << 10
	maxXattrNames = 64 << 10 // all names of a file, each with its NUL
)

// xattr is one extended attribute.
type xattr struct {
	name  string
	value []byte
}

// parseXattrs parses an a(ayay). The names must be sorted and unique, and everything must be
// within the kernel's limits.
func parseXattrs(v gvariant.Value) ([]xattr, error) {
	var xattrs []xattr
	last, names := "", 0
	for entry := range v.Members() {
		raw, value := entry.Field(0).Bytes(), entry.Field(1).Bytes()
		if len(raw) > maxXattrName+1 || len(value) > maxXattrValue {
			return nil, fmt.Errorf("extended attribute %.40q… has a name of %d bytes and %d bytes, more than %d and %d",
				raw, max(len(raw)-1, 0), len(value), maxXattrName, maxXattrValue)
		}
		text, ended := bytes.CutSuffix(raw, []byte{0})
		name := string(text)
		if !ended || name == "" || strings.Contains(name, "\x00") || name <= last {
			return nil, fmt.Errorf("extended attribute %q: bad name or order", raw)
		}
		if names += len(raw); names > maxXattrNames {
			return nil, fmt.Errorf("the names of its extended attributes have more than %d bytes", maxXattrNames)
		}
		last = name
		xattrs = append(xattrs, xattr{name, value})
	}
	return xattrs, nil
}

// checkXattrs returns an error for attributes that the kernel does not accept on any file system for a file of this
// mode, or would change. Then the object on disk would have another checksum. It is called before anything is written,
// because the errno of setxattr(2) does not tell whether the image, the file system or a security module is the cause.
func checkXattrs(xattrs []xattr, mode uint32) error {
	for _, x := range xattrs {
		if err := x.check(mode); err != nil {
			return fmt.Errorf("extended attribute %q: %w", x.name, err)
		}
	}
	return nil
}

func (x xattr) check(mode uint32) error {
	kind := mode & unix.S_IFMT
	if len(x.value) == 0 && kind != unix.S_IFDIR { // a DirMeta is stored as data, not read back from the file system
		return fmt.Errorf("it is empty, and ostree knows no empty ones")
	}
	namespace, _, _ := strings.Cut(x.name, ".")
	switch {
	case !KnownXattr(x.name):
		return fmt.Errorf("no Linux has such an attribute")
	case namespace == "system":
		return x.checkACL(mode)
	case namespace == "user" && kind == unix.S_IFLNK:
		return fmt.Errorf("a symbolic link cannot have it")
	case x.name == "security.capability":
		return checkCapability(x.value)
	}
	return nil
}

// KnownXattr reports whether Linux lets a program set an extended attribute with a name on a file system that hosts use
// (xattr(7)). In the namespace "system" it knows only POSIX ACLs; nfs4_acl is of network file systems.
func KnownXattr(name string) bool {
	switch namespace, rest, _ := strings.Cut(name, "."); namespace {
	case "user", "trusted", "security":
		return rest != ""
	case "system":
		return rest == "posix_acl_access" || rest == "posix_acl_default"
	}
	return false
}
