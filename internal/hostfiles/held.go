package hostfiles

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// held is an entry of a directory that is held by a descriptor. Whatever its name is given to meanwhile, its
// attributes, its content and its target are those of one file. Nothing hangs or has effects when it is held, not even
// for a FIFO or a device.
type held struct {
	fd   int
	stat unix.Stat_t
}

// hold holds an entry of the directory, which may be a link. The error wraps fs.ErrNotExist if there
// is none, and ErrMounted.
func (d *Dir) hold(base string) (*held, error) {
	fd, err := d.openat(base, unix.O_NOFOLLOW)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: base, Err: err}
	}
	h := &held{fd: fd}
	if err := unix.Fstat(fd, &h.stat); err != nil {
		h.Close()
		return nil, &fs.PathError{Op: "stat", Path: base, Err: asMounted(err)}
	}
	return h, nil
}

// Close lets the entry go.
func (h *held) Close() { _ = unix.Close(h.fd) } // nothing was written

// path returns a path to the entry itself, for as long as it is held.
func (h *held) path() string { return pathOf(h.fd) }

// pathOf returns a path to an open file that does not depend on its name.
func pathOf(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// open opens a regular file for reading.
func (h *held) open() (*os.File, error) { return os.Open(h.path()) }

// content returns the content of a regular file, and its digest: TooLarge, and no content, if it is
// too large to be compared.
func (h *held) content() ([]byte, Digest, error) {
	file, err := h.open()
	if err != nil {
		return nil, TooLarge, err
	}
	defer file.Close()
	content, whole, err := readAtMost(file, h.stat.Size, maxRead)
	if err != nil || !whole {
		return nil, TooLarge, err
	}
	return content, DigestOf(content), nil
}

// readAtMost reads a file of a size, which may change meanwhile. whole is false if it has more than
// max bytes; then the content is not complete.
func readAtMost(file io.Reader, size int64, max int) (content []byte, whole bool, err error) {
	if size > int64(max) {
		return nil, false, nil
	}
	read := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
	_, err = read.ReadFrom(io.LimitReader(file, int64(max)+1))
	return read.Bytes(), read.Len() <= max, err
}

// target returns the target of a symbolic link.
func (h *held) target() (string, error) {
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(h.fd, "", target)
	return string(target[:max(n, 0)]), err
}
