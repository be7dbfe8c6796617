package ostree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/hostfiles"
)

// SetLabel sets the SELinux label in extended attributes, or removes it if label is "".
func SetLabel(xattrs map[string][]byte, label string) {
	delete(xattrs, hostfiles.LabelAttribute)
	if label != "" {
		xattrs[hostfiles.LabelAttribute] = append([]byte(label), 0)
	}
}

// FileStat describes a file object as far as it is known without reading its content.
type FileStat struct {
	Mode  uint32 // with the type bits
	Size  int64  // of a regular file's content, in bytes
	Label string // the SELinux label, or ""
}

// StatFile returns the FileStat of a file object of this import or of the repository.
func (im *Import) StatFile(c Checksum) (FileStat, error) {
	path := im.objectPath(ObjectName{c, File})
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	var label string
	if err == nil {
		label, err = hostfiles.LabelOf(path)
	}
	if err != nil {
		return FileStat{}, fmt.Errorf("cannot look at object %s: %w", ObjectName{c, File}, err)
	}
	return FileStat{st.Mode, st.Size, label}, nil
}

// ReadLink returns the target of a symbolic link, given its file object.
func (im *Import) ReadLink(c Checksum) (string, error) {
	target, err := os.Readlink(im.objectPath(ObjectName{c, File}))
	if err != nil {
		return "", fmt.Errorf("cannot look at object %s: %w", ObjectName{c, File}, err)
	}
	return target, nil
}

// Relabel adds a copy of a file object of this import or of the repository, with another
// SELinux label, and returns the copy's checksum. The original object stays.
func (im *Import) Relabel(ctx context.Context, c Checksum, label string) (Checksum, error) {
	im.relabels()
	made, err := im.addLabelled(ctx, c, label, im.AddNewFile)
	if err != nil {
		return c, fmt.Errorf("cannot label object %s: %w", ObjectName{c, File}, err)
	}
	return made, nil
}

// relabels notes that from now on an object that is added again may be one that another has become.
func (im *Import) relabels() {
	im.mu.Lock()
	defer im.mu.Unlock()
	im.relabelling = true
}

// MoveLabel is like Relabel, for an object that the caller no longer needs with its old label. If the
// object is only staged, and no other object has become this one by its own new label, it is changed in
// place instead of copied.
func (im *Import) MoveLabel(ctx context.Context, c Checksum, label string) (Checksum, error) {
	im.relabels()
	n := ObjectName{c, File}
	if im.state(n) != isStaged {
		return im.Relabel(ctx, c, label)
	}
	made, err := im.addLabelled(ctx, c, label, func(ctx context.Context, info FileInfo, content io.Reader) (Checksum, error) {
		if info.Target != "" {
			return im.AddNewFile(ctx, info, nil)
		}
		return im.moveStaged(n, info, content, label)
	})
	if err != nil {
		return c, fmt.Errorf("cannot label object %s: %w", n, err)
	}
	return made, nil
}

// addLabelled calls add with an object's content and its metadata with another label.
func (im *Import) addLabelled(ctx context.Context, c Checksum, label string, add func(context.Context, FileInfo, io.Reader) (Checksum, error)) (Checksum, error) {
	path := im.objectPath(ObjectName{c, File})
	info, xattrs, err := readInfo(path)
	if err != nil {
		return c, err
	}
	SetLabel(xattrs, label)
	if info.Xattrs, err = EncodeXattrs(xattrs); err != nil || info.Target != "" {
		if err == nil {
			c, err = add(ctx, info, nil)
		}
		return c, err
	}
	f, err := os.Open(path)
	if err != nil {
		return c, err
	}
	defer f.Close()
	return add(ctx, info, f)
}

// moveStaged changes the label of a staged object and renames it. Until it has its new name,
// its modification time marks it as incomplete, so that after a crash the next import does
// not use it.
func (im *Import) moveStaged(from ObjectName, info FileInfo, content io.Reader, label string) (Checksum, error) {
	h, err := info.header()
	if err != nil {
		return from.Checksum, err
	}
	sum := h.sum()
	if err := h.copyContent(sum, content); err != nil {
		return from.Checksum, err
	}
	n := ObjectName{Checksum(sum.Sum(nil)), File}
	err = im.add(n, im.file(n, h), func() (objectState, error) {
		if err := im.checkLabels(n, h.xattrs); err != nil {
			return absent, err
		}
		if !im.give(from) {
			return isStaged, im.copyStaged(from, n, h)
		}
		defer im.given(from)
		return isStaged, im.staging.rename(from, n, func(path string) error { return hostfiles.SetLabel(path, label) })
	})
	return n.Checksum, err
}

// copyStaged writes an object with the content of a staged one.
func (im *Import) copyStaged(from, to ObjectName, h *fileHeader) error {
	f, err := os.Open(im.staging.path(from))
	if err != nil {
		return err
	}
	defer f.Close()
	return im.writeObject(to, h, &trackedStream{from: f}, h.copyContent)
}

// objectPath returns the path of an object, staged or in the repository. A wrong file of the repository is not there.
func (im *Import) objectPath(n ObjectName) string {
	state := im.state(n)
	if state == absent && n.Type == File {
		if found, err := im.repo.findFile(n); err == nil && found == absent {
			return im.staging.path(n)
		}
	}
	if state == isStaged {
		return im.staging.path(n)
	}
	return im.repo.objectPath(n)
}

// OpenFile opens a regular file object of this import or of the repository for reading.
func (im *Import) OpenFile(c Checksum) (io.ReadCloser, error) {
	return os.Open(im.objectPath(ObjectName{c, File}))
}

// readInfo reads the metadata of a file object in a bare repository. info.Xattrs is not set.
func readInfo(path string) (info FileInfo, xattrs map[string][]byte, err error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return info, nil, err
	}
	return infoOf(path, st)
}

// infoOf does what readInfo does, for a file that was looked at.
func infoOf(path string, st unix.Stat_t) (info FileInfo, xattrs map[string][]byte, err error) {
	info = FileInfo{UID: st.Uid, GID: st.Gid, Mode: st.Mode}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		info.Target, err = os.Readlink(path)
	} else {
		info.Size = uint64(st.Size)
	}
	if err != nil {
		return info, nil, err
	}
	xattrs, err = readXattrs(path)
	return info, xattrs, err
}

// readXattrs reads all extended attributes of a file or link.
func readXattrs(path string) (map[string][]byte, error) {
	list := make([]byte, 256) // nearly all are shorter
	n, err := unix.Llistxattr(path, list)
	if errors.Is(err, unix.ERANGE) {
		list = make([]byte, maxXattrList)
		n, err = unix.Llistxattr(path, list)
	}
	if err != nil && !errors.Is(err, unix.ENOTSUP) {
		return nil, err
	}
	xattrs := map[string][]byte{}
	for name := range strings.SplitSeq(string(list[:max(n, 0)]), "\x00") {
		if name == "" {
			continue
		}
		if xattrs[name], err = readXattr(path, name); err != nil {
			return nil, err
		}
	}
	return xattrs, nil
}

// maxXattrList is the maximum length of the list of attribute names, in bytes (XATTR_LIST_MAX).
const maxXattrList = 64 << 10

func readXattr(path, name string) ([]byte, error) {
	value := make([]byte, 256) // nearly all are smaller
	n, err := unix.Lgetxattr(path, name, value)
	if errors.Is(err, unix.ERANGE) {
		value = make([]byte, 64<<10) // XATTR_SIZE_MAX
		n, err = unix.Lgetxattr(path, name, value)
	}
	return value[:max(n, 0)], err
}
