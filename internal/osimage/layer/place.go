package layer

import (
	"path"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/osimage/imagefault"
)

// Limits for names in a layer, in bytes.
const (
	maxPath = unix.PathMax - 1
	maxName = 255 // the limit of the file systems that hosts use
)

// objectStore is the directory of the objects in the base layers of an ostree-native container.
// A file of the base is a hard link to its object there, and a build that changes the file
// may write an entry for either name.
const objectStore = "sysroot/ostree"

// baseObjects is the prefix of the paths of these objects.
const baseObjects = objectStore + "/repo/objects/"

// placeOf returns the path in a commit's tree for an entry of a layer; "" is the root. kept is
// false for an entry that is not part of a commit. Such an entry below objectStore may still
// be the target of a hard link.
func placeOf(name string) (at string, kept bool, err error) {
	if at, err = clean(name); err != nil {
		return "", false, err
	}
	top, _, below := strings.Cut(at, "/")
	switch {
	case at == objectStore || strings.HasPrefix(at, objectStore+"/"):
		return at, false, nil
	case top == "etc", top == whiteout+"etc":
		return "usr/" + at, true, nil
	case isRuntime(top):
		return at, !below, nil
	}
	return at, true, nil
}

// clean returns a path without empty components and ".". It rejects ".." and names that a host
// cannot store. Nearly all paths are "./NAME" or clean already, so it calls path.Clean only if
// that is needed.
func clean(name string) (string, error) {
	if len(name) > maxPath || !utf8.ValidString(name) || strings.IndexByte(name, 0) >= 0 {
		return "", imagefault.Misbuilt("a path has at most %d bytes, in UTF-8 and without zeroes", maxPath)
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "./"), "/")
	empty := false
	for rest, more := name, true; more; {
		var part string
		part, rest, more = strings.Cut(rest, "/")
		switch {
		case part == "" || part == ".":
			empty = true
		case part == "..":
			return "", imagefault.Misbuilt("a path that leads upwards")
		case len(part) > maxName:
			return "", imagefault.Misbuilt("a name longer than %d bytes", maxName)
		}
	}
	if empty {
		name = strings.TrimPrefix(path.Clean("/"+name), "/")
	}
	return name, nil
}

// isRuntime reports whether the content of a top-level directory belongs to the running system,
// and so is not part of a commit.
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

// Whiteouts (the OCI image specification, "layer"): a regular file with this prefix in its name removes the file with
// the rest of the name. A file with the name .wh..wh..opq removes everything that lower layers have in its directory.
const (
	whiteout = ".wh."
	opaque   = whiteout + whiteout + ".opq"
)

func isWhiteout(name string) bool { return strings.HasPrefix(name, whiteout) }

// removed returns the name that a whiteout removes, or "" if the file is another marker of a
// container tool, such as the opaque marker.
func removed(name string) (string, error) {
	name = strings.TrimPrefix(name, whiteout)
	switch {
	case name == "", name == ".", name == "..":
		return "", imagefault.Misbuilt("a whiteout of %q", name)
	case isWhiteout(name):
		return "", nil
	}
	return name, nil
}

func isLink(mode uint32) bool { return mode&unix.S_IFMT == unix.S_IFLNK }

// otherName reports whether a symbolic link leads to the other name of its own place in a commit, as /etc/x to /usr/etc/x.
// Such a link is no entry: what is at the place already has both names, and the link would replace it by itself.
func otherName(name, target string) bool {
	from := path.Join("/", name)
	if !path.IsAbs(target) {
		target = path.Join(path.Dir(from), target)
	}
	to := path.Clean(target)
	return from != to && Place(from[1:]) == Place(to[1:])
}

// Place returns the path in a commit's tree for an entry of a layer.
func Place(name string) string {
	at, _, _ := placeOf(name)
	return at
}
