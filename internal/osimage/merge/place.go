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

// objectStore is where an image's base keeps its objects. Builders write to it when
// they change a file through its other name there.
const objectStore = "sysroot/ostree"

// place is where an entry of a layer goes in a commit's tree: "" is the root. An
// entry that is not kept has no place there; below objectStore it may still be
// what a hard link means.
func place(name string) (path string, kept bool, err error) {
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

// isRuntime reports whether what is below a directory belongs to the running system
// and not to an image.
func isRuntime(top string) bool {
	switch top {
	case "run", "tmp", "proc", "sys", "dev":
		return true
	}
	return false
}

// isOfOS reports whether a directory at the top is part of each host. Others can be
// seen only where the root is not that of the deployment alone.
func isOfOS(top string) bool { return top == "usr" || top == "var" || isRuntime(top) }

// Whiteouts (the OCI image specification, "layer"): a regular file with the prefix
// removes what the rest of its name names, or, with the name opaque, all that lower
// layers have in its directory.
const (
	whiteoutPrefix = ".wh."
	opaque         = whiteoutPrefix + whiteoutPrefix + ".opq"
)

func isWhiteout(name string) bool { return strings.HasPrefix(name, whiteoutPrefix) }

// removed is the name that a whiteout removes; "" if it is a marker of a container
// tool's own.
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

// Place is where an entry of a layer goes in a commit's tree, by the name that it has
// in the layer.
func Place(name string) string {
	path, _, _ := place(name)
	return path
}
