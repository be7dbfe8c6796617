package ostree

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
	"math/bits"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/ostree/gvariant"
)

// The GVariant types of file headers. In archive repositories the header begins with the
// size. The checksum of a file object covers the header without the size, and the content.
var (
	archiveHeaderType = gvariant.MustType("(tuuuusa(ayay))")
	headerType        = gvariant.MustType("(uuuusa(ayay))")
	xattrsType        = gvariant.MustType("a(ayay)")
)

// fileHeader is the metadata of a file object.
type fileHeader struct {
	owned
	size      uint64 // of the content, in bytes
	target    string // of a symbolic link
	xattrs    []xattr
	canonical []byte // the serialized header that the checksum covers
}

func (h *fileHeader) isLink() bool { return h.mode&unix.S_IFMT == unix.S_IFLNK }

// readHeaderLength reads the length at the start of a .filez stream.
func readHeaderLength(r io.Reader) (int, error) {
	var prefix [8]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return 0, err
	}
	return headerLength(prefix)
}

// readArchiveHeader reads the header of a .filez stream, after its length.
func (im *Import) readArchiveHeader(r io.Reader, length int) (*fileHeader, error) {
	data := make([]byte, length)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, err
	}
	return im.headers.archiveHeader(data)
}

func parseArchiveHeader(data []byte) (*fileHeader, error) {
	v, err := archiveHeaderType.Open(data)
	if err != nil {
		return nil, err
	}
	if rdev := bigEndian(v.Field(4).Uint32()); rdev != 0 {
		return nil, fmt.Errorf("it is a device (rdev %d)", rdev)
	}
	h := &fileHeader{
		size:   bits.ReverseBytes64(v.Field(0).Uint64()),
		owned:  ownedIn(v, 1),
		target: v.Field(5).Text(),
	}
	return h, h.complete(v.Field(6))
}

// FileInfo is the metadata of a file object, without its content.
type FileInfo struct {
	UID, GID uint32
	Mode     uint32 // with the type bits
	Size     uint64 // of the content, in bytes
	Target   string // of a symbolic link
	Xattrs   []byte // a GVariant of type a(ayay), as in file-xattrs objects; empty: none
}

// header returns the validated file header for an info.
func (i FileInfo) header() (*fileHeader, error) {
	h := &fileHeader{size: i.Size, owned: owned{i.UID, i.GID, i.Mode}, target: i.Target}
	v, err := xattrsType.Open(i.Xattrs)
	if err != nil {
		return nil, fmt.Errorf("its extended attributes: %w", err)
	}
	return h, h.complete(v)
}

// complete sets the extended attributes, checks the header, and sets its canonical form.
func (h *fileHeader) complete(xattrs gvariant.Value) (err error) {
	if h.xattrs, err = parseXattrs(xattrs); err != nil {
		return err
	}
	if err := h.check(); err != nil {
		return err
	}
	// Encoded again instead of copied, because ostree fsck rebuilds it from the file on disk.
	list := make([]any, len(h.xattrs))
	for i, x := range h.xattrs {
		list[i] = gvariant.Tuple{[]byte(x.name + "\x00"), x.value}
	}
	h.canonical, err = headerType.Encode(
		gvariant.Tuple{bigEndian(h.uid), bigEndian(h.gid), bigEndian(h.mode), uint32(0), h.target, list})
	return err
}

// check returns an error for file types that ostree does not store, and for metadata that no file on disk can have. The
// kernel would refuse or change it, and then the checksum would not match.
func (h *fileHeader) check() error {
	switch kind := h.mode & unix.S_IFMT; {
	case kind != unix.S_IFREG && kind != unix.S_IFLNK:
		return fmt.Errorf("its mode %#o is neither a file's nor a link's", h.mode)
	case h.isLink() != (h.target != ""):
		return fmt.Errorf("its link target %.40q does not fit its mode %#o", h.target, h.mode)
	case h.isLink() && h.size != 0:
		return fmt.Errorf("it is a link with content")
	case h.isLink() && h.mode&0o7777 != 0o777:
		return fmt.Errorf("its mode %#o is no symbolic link's, which is %#o", h.mode, unix.S_IFLNK|0o777)
	case len(h.target) >= unix.PathMax:
		return fmt.Errorf("its link target has %d bytes, more than %d", len(h.target), unix.PathMax-1)
	case !utf8.ValidString(h.target):
		return fmt.Errorf("its link target %.40q is not UTF-8", h.target)
	case strings.Contains(h.target, "\x00"):
		return fmt.Errorf("its link target %.40q has a NUL", h.target)
	}
	if err := h.owned.check(); err != nil {
		return err
	}
	return checkXattrs(h.xattrs, h.mode)
}

// sum returns a hash to which the header, preceded by its length, has been written. The
// caller writes the content.
func (h *fileHeader) sum() hash.Hash {
	sum := sha256.New()
	var prefix [8]byte
	binary.BigEndian.PutUint32(prefix[:4], uint32(len(h.canonical)))
	sum.Write(prefix[:])
	sum.Write(h.canonical)
	return sum
}

// copyContent copies the content from r to w. The content must have exactly the size given in
// the header.
func (h *fileHeader) copyContent(w io.Writer, r io.Reader) error {
	n, err := io.Copy(w, io.LimitReader(r, int64(min(h.size, 1<<62))))
	if err != nil {
		return err
	}
	if uint64(n) != h.size {
		return fmt.Errorf("it has %d bytes of content, its header says %d", n, h.size)
	}
	return empty(r)
}

// empty returns an error if the stream has any data.
func empty(r io.Reader) error {
	switch n, err := io.ReadFull(r, make([]byte, 1)); {
	case n > 0:
		return fmt.Errorf("something follows its content")
	case err == io.EOF:
		return nil
	default:
		return err
	}
}
