package layer

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/osimage/imagefault"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/printable"
)

const (
	maxXattrs   = 1 << 20 // bytes of one file's extended attributes: more than file systems allow
	setOverhead = 128     // bytes of memory that a set of attributes takes besides its content
)

// ObjectOf returns the object of a file of a layer with the given name: the file has its content or, if xattrs is set,
// its extended attributes. is is false for other files of an ostree-native container.
func ObjectOf(name string) (n ostree.ObjectName, xattrs, is bool) {
	object, below := strings.CutPrefix(strings.TrimPrefix(path.Clean("/"+name), "/"), baseObjects)
	if !below {
		return n, false, false
	}
	object, xattrs = strings.CutSuffix(object, "-xattrs-link")
	n, archive, err := ostree.ParseLoosePath(object)
	return n, xattrs, err == nil && !archive
}

// errNative is the error for a layer that does not have the format that ostree-ext writes.
var errNative = errors.New("not a layer of an ostree-native container")

// Native is the Content of a layer with objects, in the format that ostree-ext has written
// since 2022 (crates/ostree-ext/src/tar/export.rs). The extended attributes of a file
// precede it in a file-xattrs-link: a hard link to a file-xattrs object (until bootc
// 1.7), or a file with the attributes (since 1.8).
type Native struct {
	// Set when the layer has been read:
	Commit ostree.Checksum   // zero except for the first layer
	Files  []ostree.Checksum // the file objects, without duplicates

	sink    Sink
	first   bool // the layer that has the commit and all metadata
	seen    map[ostree.Checksum]bool
	sets    map[ostree.Checksum][]byte // the content of file-xattrs objects
	pending *xattrsOf
}

// xattrsOf holds the extended attributes of the next file.
type xattrsOf struct {
	file ostree.Checksum
	data []byte
}

// NewNative returns a Content that puts a layer's objects into a sink. first must be set for the
// image's first layer, which has the commit and all metadata objects.
func NewNative(sink Sink, first bool) *Native {
	return &Native{sink: sink, first: first, seen: map[ostree.Checksum]bool{}, sets: map[ostree.Checksum][]byte{}}
}

func (t *Native) entry(ctx context.Context, to *feeder, header *tar.Header, name string, body io.Reader) error {
	object, ok := strings.CutPrefix(name, baseObjects)
	if !ok || header.Typeflag == tar.TypeDir {
		return nil
	}
	stem, suffix, _ := strings.Cut(object, ".")
	named, _, err := ostree.ParseLoosePath(stem + ".file")
	if err == nil {
		err = t.object(ctx, to, header, named.Checksum, suffix, body)
	}
	if err != nil {
		return fmt.Errorf("/%s: %w", printable.Line(name), err)
	}
	return nil
}

func (t *Native) object(ctx context.Context, to *feeder, header *tar.Header, c ostree.Checksum, suffix string, body io.Reader) error {
	switch suffix {
	case "file":
		return t.file(ctx, to, header, c, body)
	case "file-xattrs":
		return t.xattrSet(to, header, c, body)
	case "file-xattrs-link":
		return t.xattrs(header, c, body)
	}
	name, _, err := ostree.ParseLoosePath(c.String()[:2] + "/" + c.String()[2:] + "." + suffix)
	switch {
	case err != nil:
		return err
	case !t.first:
		return fmt.Errorf("%w: metadata in a layer other than the first", errNative)
	case header.Typeflag != tar.TypeReg:
		return fmt.Errorf("%w: it is no regular file", errNative)
	case name.Type == ostree.Commit && t.Commit != ostree.Checksum{} && t.Commit != c:
		return fmt.Errorf("%w: a second commit", errNative)
	case name.Type == ostree.Commit:
		t.Commit = c
	}
	return to.feed(ctx, header.Size, body, func(body io.Reader) error { return t.sink.AddMetadata(ctx, name, body) })
}

// xattrSet keeps a set of extended attributes to which later files refer.
func (t *Native) xattrSet(to *feeder, header *tar.Header, c ostree.Checksum, body io.Reader) error {
	data, err := readXattrs(header, body)
	if err != nil {
		return err
	}
	if ostree.Checksum(sha256.Sum256(data)) != c {
		return fmt.Errorf("%w: its content has another checksum", errNative)
	}
	if err := to.countXattrs(int64(len(data)) + setOverhead); err != nil {
		return err
	}
	t.sets[c] = data
	return nil
}

func readXattrs(header *tar.Header, body io.Reader) ([]byte, error) {
	if header.Size > maxXattrs {
		return nil, imagefault.TooLarge("extended attributes of %d bytes, more than %d", header.Size, maxXattrs)
	}
	if header.Typeflag != tar.TypeReg {
		return nil, fmt.Errorf("%w: extended attributes of type %q with %d bytes", errNative, header.Typeflag, header.Size)
	}
	return io.ReadAll(body)
}

// xattrs keeps the extended attributes of the file that follows.
func (t *Native) xattrs(header *tar.Header, c ostree.Checksum, body io.Reader) error {
	if t.pending != nil {
		return fmt.Errorf("%w: extended attributes, but the file of those before is missing", errNative)
	}
	t.pending = &xattrsOf{file: c}
	if header.Typeflag != tar.TypeLink {
		data, err := readXattrs(header, body)
		t.pending.data = data
		return err
	}
	target, _ := strings.CutPrefix(strings.TrimPrefix(path.Clean("/"+header.Linkname), "/"), baseObjects)
	digits, ok := strings.CutSuffix(strings.Replace(target, "/", "", 1), ".file-xattrs")
	set, err := ostree.ParseChecksum(digits)
	data, found := t.sets[set]
	if !ok || err != nil || !found {
		return fmt.Errorf("%w: it refers to extended attributes %q that did not come before it", errNative, header.Linkname)
	}
	t.pending.data = data
	return nil
}

// file puts a file object into the sink.
func (t *Native) file(ctx context.Context, to *feeder, header *tar.Header, c ostree.Checksum, body io.Reader) error {
	if t.pending == nil || t.pending.file != c {
		return fmt.Errorf("%w: its extended attributes did not come before it", errNative)
	}
	if t.seen[c] {
		return fmt.Errorf("%w: the object stands twice", errNative)
	}
	info := ostree.FileInfo{UID: uint32(header.Uid), GID: uint32(header.Gid), Xattrs: t.pending.data}
	switch header.Typeflag {
	case tar.TypeReg:
		info.Size, info.Mode = uint64(header.Size), unix.S_IFREG|uint32(header.Mode)&0o7777
	case tar.TypeSymlink:
		info.Target, info.Mode = header.Linkname, unix.S_IFLNK|0o777
	default:
		return fmt.Errorf("%w: its type is %q", errNative, header.Typeflag)
	}
	t.pending, t.seen[c] = nil, true
	t.Files = append(t.Files, c)
	return to.feed(ctx, header.Size, body, func(body io.Reader) error { return t.sink.AddFile(ctx, c, info, body) })
}

// ended implements Content. It also frees the memory that was needed for reading only.
func (t *Native) ended() error {
	t.seen, t.sets = nil, nil
	if t.pending != nil {
		return imagefault.Misbuilt("%w: it ends with extended attributes of a file that is missing", errNative)
	}
	if t.first && t.Commit == (ostree.Checksum{}) {
		return imagefault.Misbuilt("%w: no commit in the first layer", errNative)
	}
	return nil
}

// ofObjects implements Content.
func (*Native) ofObjects() bool { return true }
