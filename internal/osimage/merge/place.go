package merge

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/osimage/imagefault"
)

// Bounds of what a layer may hold.
const (
	maxPath = unix.PathMax - 1
	maxName = 255 // bytes, of the file systems that hosts have
)

// objectStore is where the base layers of an ostree-native container have their objects. A
// file of the base is a hard link to its object there, and a build that changes the file
// may write an entry for either name.
const objectStore = "sysroot/ostree"

// placeOf is the path in a commit's tree for an entry of a layer; "" is the root. kept is
// false for an entry that a commit does not have; one below objectStore may still be the
// target of a hard link.
func placeOf(name string) (path string, kept bool, err error) {
	parts, err := split(name)
	if err != nil {
		return "", false, err
	}
	path = strings.Join(parts, "/")
	switch {
	case len(parts) == 0:
	case path == objectStore || strings.HasPrefix(path, objectStore+"/"):
		return path, false, nil
	case parts[0] == "etc", parts[0] == whiteoutPrefix+"etc":
		return "usr/" + path, true, nil
	case isRuntime(parts[0]):
		return path, len(parts) == 1, nil
	}
	return path, true, nil
}

// split splits a path into its components.
func split(name string) ([]string, error) {
	var parts []string
	if len(name) > maxPath || !utf8.ValidString(name) || strings.Contains(name, "\x00") {
		return nil, imagefault.Damaged("a path has at most %d bytes, in UTF-8 and without zeroes", maxPath)
	}
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "" || part == ".":
		case part == "..":
			return nil, imagefault.Damaged("a path that leads upwards")
		case len(part) > maxName:
			return nil, imagefault.Damaged("a name longer than %d bytes", maxName)
		default:
			parts = append(parts, part)
		}
	}
	return parts, nil
}

// isRuntime reports whether the content of a directory belongs to the running system, and
// so is not part of a commit.
func isRuntime(top string) bool {
	switch top {
	case "run", "tmp", "proc", "sys", "dev":
		return true
	}
	return false
}

// isOfOS reports whether a top-level directory is part of every ostree host. Others are
// visible only if the system mounts the commit's root (Tree.nonUsr).
func isOfOS(top string) bool { return top == "usr" || top == "var" || isRuntime(top) }

// Whiteouts (the OCI image specification, "layer"): a regular file with the prefix
// removes what the rest of its name names, or, with the name opaque, all that lower
// layers have in its directory.
const (
	whiteoutPrefix = ".wh."
	opaque         = whiteoutPrefix + whiteoutPrefix + ".opq"
)

func isWhiteout(name string) bool { return strings.HasPrefix(name, whiteoutPrefix) }

// removed is the name that a whiteout removes; "" if it is another marker of a container
// tool, such as the opaque one.
func removed(name string) (string, error) {
	name = strings.TrimPrefix(name, whiteoutPrefix)
	switch {
	case name == "", name == ".", name == "..":
		return "", imagefault.Damaged("a whiteout of %q", name)
	case isWhiteout(name):
		return "", nil
	}
	return name, nil
}

func isLink(mode uint32) bool { return mode&unix.S_IFMT == unix.S_IFLNK }

// Place is the path in a commit's tree for an entry of a layer.
func Place(name string) string {
	path, _, _ := placeOf(name)
	return path
}
