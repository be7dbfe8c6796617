package ostree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// AddArchiveFile adds a file or symbolic link from a .filez stream, the form of
// archive repositories. It becomes a real file with owner, mode and xattrs, as
// bare repositories have them. The content streams; a wrong one is a CorruptError.
func (im *Import) AddArchiveFile(ctx context.Context, c Checksum, body io.Reader) error {
	n := ObjectName{c, File}
	if wanted, err := im.claim(n); err != nil || !wanted {
		return err
	}
	source := &noting{from: body}
	h, err := readArchiveHeader(source)
	if err != nil {
		return source.blame(n, err)
	}
	if err := im.reserve(h.size); err != nil {
		return err
	}
	if h.isLink() {
		err = im.writeLink(n, h, source)
	} else {
		err = im.writeFile(n, h, source)
	}
	if err != nil {
		return err
	}
	im.done(n)
	return nil
}

// writeFile streams a regular file.
func (im *Import) writeFile(n ObjectName, h *fileHeader, source *noting) error {
	f, err := os.OpenFile(im.path(n), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("cannot write object: %w", err)
	}
	defer f.Close()
	sum := h.sum()
	out := &noting{to: io.MultiWriter(f, sum)}
	if err := h.copyContent(out, source); err != nil {
		if out.failed != nil {
			return fmt.Errorf("cannot write object %s: %w", n, out.failed)
		}
		return source.blame(n, err)
	}
	if got := Checksum(sum.Sum(nil)); got != n.Checksum {
		return corrupt(n, "its content has the checksum %s", got)
	}
	if err := applyMetadata(f, h); err != nil {
		return fmt.Errorf("cannot write object %s: %w", n, err)
	}
	if err := errors.Join(im.settle(f), f.Close()); err != nil {
		return fmt.Errorf("cannot write object %s: %w", n, err)
	}
	return nil
}

// applyMetadata sets owner, mode, xattrs and time, in this order: changing the
// owner clears the set-id bits and security.capability.
func applyMetadata(f *os.File, h *fileHeader) error {
	fd := int(f.Fd())
	if err := unix.Fchown(fd, int(h.uid), int(h.gid)); err != nil {
		return fmt.Errorf("cannot set the owner %d:%d: %w", h.uid, h.gid, err)
	}
	if err := unix.Fchmod(fd, h.mode&0o7777); err != nil {
		return fmt.Errorf("cannot set the mode: %w", err)
	}
	for _, x := range h.xattrs {
		if err := unix.Fsetxattr(fd, x.name, x.value, 0); err != nil {
			return fmt.Errorf("cannot set %s: %w", x.name, err)
		}
	}
	epoch := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {}}
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, f.Name(), epoch, 0); err != nil {
		return fmt.Errorf("cannot set the time: %w", err)
	}
	return nil
}

// writeLink makes a symbolic link.
func (im *Import) writeLink(n ObjectName, h *fileHeader, source *noting) error {
	sum := h.sum()
	if err := h.copyContent(io.Discard, source); err != nil {
		return source.blame(n, err)
	}
	if got := Checksum(sum.Sum(nil)); got != n.Checksum {
		return corrupt(n, "its content has the checksum %s", got)
	}
	path := im.path(n)
	if err := os.Symlink(h.target, path); err != nil {
		return fmt.Errorf("cannot write object: %w", err)
	}
	if err := os.Lchown(path, int(h.uid), int(h.gid)); err != nil {
		return fmt.Errorf("cannot write object: %w", err)
	}
	for _, x := range h.xattrs {
		if err := unix.Lsetxattr(path, x.name, x.value, 0); err != nil {
			return fmt.Errorf("cannot write object %s: cannot set %s: %w", n, x.name, err)
		}
	}
	return nil
}

// noting remembers the failure of a stream, so that it can be told from wrong content.
type noting struct {
	from   io.Reader
	to     io.Writer
	failed error
}

// Read implements io.Reader.
func (s *noting) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	if err != nil && err != io.EOF {
		s.failed = err
	}
	return n, err
}

// Write implements io.Writer.
func (s *noting) Write(p []byte) (int, error) {
	n, err := s.to.Write(p)
	s.failed = err
	return n, err
}

// blame says whose fault err is: the stream's, which could not be read, or the
// object's, which is not what it should be.
func (s *noting) blame(n ObjectName, err error) error {
	if s.failed != nil {
		return fmt.Errorf("cannot read object %s: %w", n, s.failed)
	}
	return corrupt(n, "%v", err)
}
