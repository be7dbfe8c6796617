package ostree

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
)

// An object that the repository has is reused only if it can be right. Deployments have hard links to the
// objects, through which anybody may have written, and a disk or a power cut may have taken their content. Reading all
// of them would cost as much as writing them, so this is what is looked at:
//
//   - of a metadata object, its content: it is small, and read anyway;
//   - of a file that is added, all that its header says, and the time of its last change;
//   - of a file of which only the name is known, the time and whether it is empty;
//   - of a link of which only the name is known, its checksum, since a link is small.
//
// libostree and this package give each file the same time when it is complete (OSTREE_TIMESTAMP in libostree's
// ostree-core.h). So one with another time was changed since, or copied by another program: its checksum decides.
//
// A wrong object counts as missing. So it is fetched with its layer, and place replaces it. The deployments that have
// it keep theirs. A directory in its place is not removed, since nobody knows what it holds, and the error says so.

// findFile returns the state of a file object of the repository of which only the name is known.
func (r *Repo) findFile(n ObjectName) (objectState, error) {
	var st unix.Stat_t
	if err := unix.Lstat(r.objectPath(n), &st); err != nil {
		return absent, unlessMissing(err, r.objectPath(n))
	}
	if isUnchanged(st) && st.Size > 0 || r.verifies(n) {
		return inRepo, nil
	}
	return absent, nil
}

// fits reports whether the repository has a file object that can be the one with the given header.
func (im *Import) fits(n ObjectName, h *fileHeader) (bool, error) {
	path := im.repo.objectPath(n)
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return false, unlessMissing(err, path)
	}
	has, xattrs, err := infoOf(path, st)
	if err != nil {
		return false, unlessMissing(err, path)
	}
	if (owned{has.UID, has.GID, has.Mode}) != h.owned || has.Size != h.size || has.Target != h.target || !im.hasXattrs(n, xattrs, h.xattrs) {
		return false, nil
	}
	return isLink(st) || isUnchanged(st) || im.repo.verifies(n), nil
}

// hasXattrs reports whether a file has extended attributes, and no others but what the kernel gives by itself. A label that the
// running kernel's policy does not know is not compared, since the kernel shows another one in its place.
func (im *Import) hasXattrs(n ObjectName, has map[string][]byte, wanted []xattr) bool {
	for _, x := range wanted {
		if !bytes.Equal(has[x.name], x.value) && (x.name != hostfiles.LabelAttribute || im.checkLabels(n, wanted) == nil) {
			return false
		}
		delete(has, x.name)
	}
	for name := range has {
		if !givenByKernel(name) {
			return false
		}
	}
	return true
}

// givenByKernel reports whether a file may have an extended attribute without anybody having set it: a label or a
// measurement of a security module. A capability is none of these.
func givenByKernel(name string) bool {
	return strings.HasPrefix(name, "security.") && name != "security.capability"
}

// verifies reports whether an object of the repository has the content that its name says. One that cannot be read
// has not.
func (r *Repo) verifies(n ObjectName) bool {
	if n.Type != File {
		_, err := r.readMetadata(n)
		return err == nil
	}
	info, xattrs, err := readInfo(r.objectPath(n))
	if err != nil {
		return false
	}
	if r.hasChecksum(n, info, xattrs) {
		return true
	}
	stored := len(xattrs)
	for name := range xattrs {
		if givenByKernel(name) {
			delete(xattrs, name)
		}
	}
	return len(xattrs) < stored && r.hasChecksum(n, info, xattrs)
}

// hasChecksum reports whether a file object's content has the object's checksum, together with the given metadata.
func (r *Repo) hasChecksum(n ObjectName, info FileInfo, xattrs map[string][]byte) bool {
	var err error
	if info.Xattrs, err = EncodeXattrs(xattrs); err != nil {
		return false
	}
	h, err := info.header()
	if err != nil {
		return false
	}
	sum := h.sum()
	if !h.isLink() {
		f, err := os.OpenFile(r.objectPath(n), os.O_RDONLY|unix.O_NOFOLLOW, 0)
		if err != nil {
			return false
		}
		defer f.Close()
		err = h.copyContent(sum, f)
		if err != nil {
			return false
		}
	}
	return Checksum(sum.Sum(nil)) == n.Checksum
}

// readMetadata reads a metadata object. Its content has the object's checksum, except for detached
// metadata, which have none.
func (at Objects) readMetadata(n ObjectName) ([]byte, error) {
	data, err := readRegular(at(n), maxMade)
	if errors.Is(err, errNotRegular) || errors.Is(err, unix.ELOOP) {
		return nil, damaged(n, at(n))
	}
	if err != nil {
		return nil, err
	}
	if got := Checksum(sha256.Sum256(data)); got != n.Checksum && n.Type != CommitMeta {
		return nil, damaged(n, at(n))
	}
	return data, nil
}

const findMore = "ostree fsck finds what else is damaged"

// damaged returns the error for a wrong object of the repository, which is at a path, where no right one is at hand.
// It has a CorruptError in its chain.
func damaged(n ObjectName, path string) error {
	path = named(path)
	return fault.New(fault.Refused, "this machine's repository is damaged: %w, in %s", corrupt(n, "it is not what its name says"), path).
		WithHint("remove %s, so that it is fetched again; %s", path, findMore)
}

// named returns the path of a file of the repository as an administrator writes it, where the repository is held open.
func named(path string) string {
	above, name := filepath.Split(path)
	if at, err := filepath.EvalSymlinks(above); err == nil {
		return filepath.Join(at, name)
	}
	return path
}

// isUnchanged reports whether a file object has the time of its completion.
func isUnchanged(st unix.Stat_t) bool {
	return st.Mode&unix.S_IFMT == unix.S_IFREG && st.Mtim == unix.Timespec{}
}

func isLink(st unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFLNK }

// unlessMissing returns the error of a look at an object's path, or nil if there is none.
func unlessMissing(err error, path string) error {
	switch {
	case err == nil || errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, unix.ENOTDIR):
		dir := named(filepath.Dir(path))
		return fault.New(fault.Refused, "this machine's repository is damaged: %s is no directory", dir).
			WithHint("remove %s, so that its objects are fetched again; %s", dir, findMore)
	}
	return fmt.Errorf("cannot look for object: %w", err)
}
