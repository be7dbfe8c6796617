package ostree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// AddArchiveFile adds a file or symbolic link from a .filez stream, the format of archive
// repositories. It is stored as in bare repositories: as a file with its owner, mode and
// extended attributes. The content is streamed. If it does not match the checksum, the error
// is a CorruptError.
func (im *Import) AddArchiveFile(ctx context.Context, c Checksum, body io.Reader) error {
	n, source := ObjectName{c, File}, &trackedStream{from: body}
	size, err := readHeaderLength(source)
	if err != nil {
		return source.readError(n, err)
	}
	defer im.oneLarge(int64(size))()
	h, err := im.readArchiveHeader(source, size)
	if err != nil {
		return source.readError(n, err)
	}
	return im.add(n, im.file(n, h), func() (objectState, error) {
		return isStaged, im.writeObject(n, h, source, im.inflateContent(h))
	})
}

// AddFile adds a file or symbolic link with metadata that are separate from its content, as in the layers of
// ostree-native containers.
func (im *Import) AddFile(ctx context.Context, c Checksum, info FileInfo, body io.Reader) error {
	n := ObjectName{c, File}
	defer im.oneLarge(int64(len(info.Xattrs)))()
	h, err := im.headers.fileHeader(info)
	if err != nil {
		return corrupt(n, "%v", err)
	}
	return im.add(n, im.file(n, h), func() (objectState, error) {
		if content, ok := body.(*bytes.Reader); ok && !h.isLink() {
			return isStaged, im.writeVerified(n, h, content)
		}
		return isStaged, im.writeObject(n, h, &trackedStream{from: body}, h.copyContent)
	})
}

// writeVerified verifies and writes a file with its content in memory. So it is hashed and written at once, and nothing
// is created for wrong content.
func (im *Import) writeVerified(n ObjectName, h *fileHeader, content *bytes.Reader) error {
	if size := uint64(content.Len()); size != h.size {
		return corrupt(n, "it has %d bytes of content, its header says %d", size, h.size)
	}
	if got := h.checksum(content); got != n.Checksum {
		return corrupt(n, "its content has the checksum %s", got)
	}
	return im.writeContent(n, h, content)
}

// writeContent writes a file with verified content, or a link.
func (im *Import) writeContent(n ObjectName, h *fileHeader, content *bytes.Reader) error {
	return im.write(n, h, func(to io.Writer) error {
		if h.isLink() {
			return nil
		}
		if _, err := content.WriteTo(to); err != nil {
			return fmt.Errorf("cannot write object %s: %w", n, err)
		}
		return nil
	})
}

// writeObject writes a file or link with the given header. The function content copies its
// content from source.
func (im *Import) writeObject(n ObjectName, h *fileHeader, source *trackedStream, content func(io.Writer, io.Reader) error) error {
	return im.write(n, h, func(to io.Writer) error {
		sum, out := h.sum(), &trackedStream{to: to}
		if err := content(io.MultiWriter(sum, out), source); err != nil {
			if out.failed != nil {
				return fmt.Errorf("cannot write object %s: %w", n, out.failed)
			}
			return source.readError(n, err)
		}
		if got := Checksum(sum.Sum(nil)); got != n.Checksum {
			return corrupt(n, "its content has the checksum %s", got)
		}
		return nil
	})
}

// write writes a file or link with the content that fill verifies and writes. A link has none.
func (im *Import) write(n ObjectName, h *fileHeader, fill func(to io.Writer) error) (err error) {
	if err := im.checkLabels(n, h.xattrs); err != nil {
		return err
	}
	if err := im.reserve(h.size); err != nil {
		return err
	}
	defer im.releaseIf(&err, h.size)
	if h.isLink() {
		if err := fill(io.Discard); err != nil {
			return err
		}
		return im.makeLink(n, h)
	}
	f, err := im.staging.create(n, h.mode)
	if err != nil {
		return fmt.Errorf("cannot write object: %w", err)
	}
	defer f.Close()
	if err := fill(f); err != nil {
		return err
	}
	return im.complete(n, f, h)
}

// complete sets the metadata of a written file and closes it.
func (im *Import) complete(n ObjectName, f *stagedFile, h *fileHeader) error {
	if err := im.applyMetadata(n, f, h); err != nil {
		return err
	}
	if err := errors.Join(im.durable(f), f.Close()); err != nil {
		return fmt.Errorf("cannot write object %s: %w", n, err)
	}
	return nil
}

// applyMetadata sets what the file does not have since its creation: owner, mode, extended attributes and modification time. The order
// matters: changing the owner clears the set-ID bits and security.capability, and the time
// marks the file as complete (see staging.whole).
func (im *Import) applyMetadata(n ObjectName, f *stagedFile, h *fileHeader) error {
	if err := im.staging.fresh.setOwner(f, h.owned); err != nil {
		return fmt.Errorf("cannot write object %s: cannot set the owner %d:%d: %w", n, h.uid, h.gid, err)
	}
	if err := im.staging.fresh.setMode(f, h.mode); err != nil {
		return fmt.Errorf("cannot write object %s: cannot set the mode: %w", n, err)
	}
	for _, x := range h.xattrs {
		if err := unix.Fsetxattr(f.fd, x.name, x.value, 0); err != nil {
			return cannotSet(n, x, err)
		}
	}
	if err := im.staging.markWhole(f.name); err != nil {
		return fmt.Errorf("cannot write object %s: cannot set the time: %w", n, err)
	}
	return nil
}

// makeLink creates the object of a symbolic link.
func (im *Import) makeLink(n ObjectName, h *fileHeader) error {
	path := im.staging.path(n)
	switch err := os.Symlink(h.target, path); {
	case errors.Is(err, unix.ENAMETOOLONG): // due to the target, not our path: some file systems allow less than the kernel
		return corrupt(n, "its link target has %d bytes, more than the file system takes", len(h.target))
	case err != nil:
		return fmt.Errorf("cannot write object: %w", err)
	}
	if err := os.Lchown(path, int(h.uid), int(h.gid)); err != nil {
		return fmt.Errorf("cannot write object: %w", err)
	}
	for _, x := range h.xattrs {
		if err := unix.Lsetxattr(path, x.name, x.value, 0); err != nil {
			return cannotSet(n, x, err)
		}
	}
	return nil
}
