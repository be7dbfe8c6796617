package ostree

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
	"math/bits"

	"golang.org/x/sys/unix"

	"machine-pivot/ostree/gvariant"
)

// The GVariant types of file headers: in archive repositories with the size in
// front; without it, it is the head of what the checksum is made from.
const (
	archiveHeaderType = "(tuuuusa(ayay))"
	headerType        = "(uuuusa(ayay))"
	xattrsType        = "a(ayay)"
)

// fileHeader is what a file object has beside its content.
type fileHeader struct {
	size           uint64 // of the content, in bytes
	uid, gid, mode uint32 // mode with the type bits
	target         string // of a symbolic link
	xattrs         []xattr
	canonical      []byte // the header that the checksum covers
}

func (h *fileHeader) isLink() bool { return h.mode&unix.S_IFMT == unix.S_IFLNK }

// readArchiveHeader reads the head of a .filez stream.
func readArchiveHeader(r io.Reader) (*fileHeader, error) {
	var prefix [8]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return nil, err
	}
	n, err := headerLength(prefix)
	if err != nil {
		return nil, err
	}
	// Grows with what is there, not with what the length claims.
	data, err := io.ReadAll(io.LimitReader(r, int64(n)))
	if err != nil {
		return nil, err
	}
	if len(data) < n {
		return nil, io.ErrUnexpectedEOF
	}
	return parseArchiveHeader(data)
}

func parseArchiveHeader(data []byte) (*fileHeader, error) {
	value, err := gvariant.Decode(archiveHeaderType, data)
	if err != nil {
		return nil, err
	}
	t := value.(gvariant.Tuple)
	h := &fileHeader{
		size: bits.ReverseBytes64(t[0].(uint64)),
		uid:  bigEndian(t[1].(uint32)), gid: bigEndian(t[2].(uint32)), mode: bigEndian(t[3].(uint32)),
		target: t[5].(string),
	}
	if h.xattrs, err = parseXattrs(t[6]); err != nil {
		return nil, err
	}
	if err := h.check(t[4].(uint32)); err != nil {
		return nil, err
	}
	h.canonical, err = gvariant.Encode(headerType, t[1:])
	return h, err
}

// FileInfo is what a file object has beside its content, where the two come apart.
type FileInfo struct {
	UID, GID uint32
	Mode     uint32 // with the type bits
	Size     uint64 // of the content, in bytes
	Target   string // of a symbolic link
	Xattrs   []byte // a GVariant of type a(ayay), as in file-xattrs objects; none if empty
}

// header is the file header of an info, in the form that the checksum covers.
func (i FileInfo) header() (*fileHeader, error) {
	h := &fileHeader{size: i.Size, uid: i.UID, gid: i.GID, mode: i.Mode, target: i.Target}
	value, err := gvariant.Decode(xattrsType, i.Xattrs)
	if err != nil {
		return nil, fmt.Errorf("its extended attributes: %w", err)
	}
	if h.xattrs, err = parseXattrs(value); err != nil {
		return nil, err
	}
	if err := h.check(0); err != nil {
		return nil, err
	}
	h.canonical, err = gvariant.Encode(headerType,
		gvariant.Tuple{bigEndian(i.UID), bigEndian(i.GID), bigEndian(i.Mode), uint32(0), i.Target, value})
	return h, err
}

// check refuses what ostree has no objects for.
func (h *fileHeader) check(rdev uint32) error {
	switch kind := h.mode & unix.S_IFMT; {
	case rdev != 0:
		return fmt.Errorf("it is a device (rdev %d)", bigEndian(rdev))
	case kind != unix.S_IFREG && kind != unix.S_IFLNK:
		return fmt.Errorf("its mode %#o is neither a file's nor a link's", h.mode)
	case h.isLink() != (h.target != ""):
		return fmt.Errorf("its link target %q does not fit its mode %#o", h.target, h.mode)
	case h.isLink() && h.size != 0:
		return fmt.Errorf("it is a link with content")
	}
	return nil
}

// sum starts the checksum: the header with its length in front, to be followed by the content.
func (h *fileHeader) sum() hash.Hash {
	sum := sha256.New()
	var prefix [8]byte
	binary.BigEndian.PutUint32(prefix[:4], uint32(len(h.canonical)))
	sum.Write(prefix[:])
	sum.Write(h.canonical)
	return sum
}

// copyContent copies the content to w, which also feeds the checksum. It must
// have the size that the header says, and nothing may follow it.
func (h *fileHeader) copyContent(w io.Writer, r io.Reader) error {
	n, err := io.Copy(w, io.LimitReader(r, int64(min(h.size, 1<<62))))
	if err != nil {
		return err
	}
	if uint64(n) != h.size {
		return fmt.Errorf("it has %d bytes of content, its header says %d", n, h.size)
	}
	if _, err := io.ReadFull(r, make([]byte, 1)); err != io.EOF {
		return fmt.Errorf("something follows its content")
	}
	return nil
}
