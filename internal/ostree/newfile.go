package ostree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/ostree/gvariant"
)

// EncodeXattrs encodes extended attributes for FileInfo.Xattrs, sorted by name.
func EncodeXattrs(xattrs map[string][]byte) ([]byte, error) {
	return xattrsType.Encode(xattrValue(xattrs))
}

func xattrValue(xattrs map[string][]byte) []any {
	entries := []any{}
	for _, name := range slices.Sorted(maps.Keys(xattrs)) {
		entries = append(entries, gvariant.Tuple{append([]byte(name), 0), xattrs[name]})
	}
	return entries
}

// AddNewFile adds a file or symbolic link with a checksum that is not known in advance, as in a derived layer, and
// returns the checksum. If no object can have this metadata, the error is an InvalidError.
func (im *Import) AddNewFile(ctx context.Context, info FileInfo, body io.Reader) (Checksum, error) {
	h, err := im.headers.fileHeader(info)
	if err != nil {
		return Checksum{}, &InvalidError{err}
	}
	if content, ok := body.(*bytes.Reader); ok || h.isLink() {
		return im.addKnown(h, content)
	}
	return im.addStream(h, body)
}

// InvalidError is the error for a file or directory that cannot be an ostree object. One that is beyond a
// limit has guard.ErrTooMuch in its chain.
type InvalidError struct{ Err error }

func (e *InvalidError) Error() string { return "cannot store it as an object: " + e.Err.Error() }

// Unwrap returns the reason.
func (e *InvalidError) Unwrap() error { return e.Err }

// addKnown adds an object with its content in memory. It computes the checksum first, so that an existing object is not
// written again.
func (im *Import) addKnown(h *fileHeader, content *bytes.Reader) (Checksum, error) {
	n := ObjectName{h.checksum(content), File}
	return n.Checksum, im.add(n, im.file(n, h), func() (objectState, error) { return isStaged, im.writeContent(n, h, content) })
}

// checksum returns the checksum of the object with a content, which it then rewinds. A link has no
// content.
func (h *fileHeader) checksum(content *bytes.Reader) Checksum {
	sum := h.sum()
	if !h.isLink() {
		start := *content
		_, _ = content.WriteTo(sum) // cannot fail
		*content = start
	}
	return Checksum(sum.Sum(nil))
}

// addStream writes content to a file with a temporary name, and renames the file when the
// checksum is known.
func (im *Import) addStream(h *fileHeader, body io.Reader) (c Checksum, err error) {
	if err := im.reserve(h.size); err != nil {
		return c, err
	}
	f, err := im.staging.createNew(h.mode)
	if err != nil {
		return c, fmt.Errorf("cannot write object: %w", err)
	}
	used := false
	defer func() {
		err = errors.Join(err, f.Close())
		if !used {
			im.release(h.size)
			err = errors.Join(err, unix.Unlinkat(im.staging.fd(), f.name, 0))
		}
	}()
	if c, err = hashInto(f, h, body); err != nil {
		return c, err
	}
	n := ObjectName{c, File}
	return c, im.add(n, im.file(n, h), func() (objectState, error) {
		err := im.checkLabels(n, h.xattrs)
		if err == nil {
			err = im.complete(n, f, h)
		}
		if err == nil {
			err = unix.Renameat(im.staging.fd(), f.name, im.staging.fd(), n.path())
		}
		used = err == nil
		return isStaged, err
	})
}

// hashInto writes content to a file and returns the checksum of the resulting object.
func hashInto(f *stagedFile, h *fileHeader, body io.Reader) (c Checksum, err error) {
	sum := h.sum()
	source, out := &trackedStream{from: body}, &trackedStream{to: f}
	err = h.copyContent(io.MultiWriter(sum, out), source)
	switch {
	case err == nil:
		return Checksum(sum.Sum(nil)), nil
	case out.failed != nil:
		return c, fmt.Errorf("cannot write object: %w", out.failed)
	case source.failed != nil:
		return c, fmt.Errorf("cannot read content: %w", source.failed)
	}
	return c, &InvalidError{err}
}
