// Package chunked reads layers in the format zstd:chunked without fetching all of them: content
// that the host has already is taken from there, and only the rest is fetched.
//
// Format (go.podman.io/storage, pkg/chunked). The layer is a tar archive, compressed with zstd in such a way that the
// content of each file has frames of its own. Skippable frames after the archive have a table of contents, with each
// file's digest and the place of its frames. They have the archive's skeleton, too: all but the files' contents, as
// tar-split writes it. Annotations of the manifest say where both are, and have the table's digest. Older builders,
// such as those of Debian 12, write no skeleton; the frames between files, which have the same, are then fetched. They
// have also a shorter prefix for the annotations.
//
// Trust. The result is the whole archive, byte for byte: its digest is compared with the diff ID in the image's config.
// So a wrong table, a wrong skeleton or a wrong local file can only make that comparison fail. The manifest also pins
// the table by its digest. In a layer of objects, which are verified one by one, the archive's headers are made from
// the table instead of fetched, and the archive has the same entries.
//
// Limits. A table and a skeleton have at most 16 MiB each, and 128 MiB decompressed, of which 8 MiB are in memory. A
// table has at most 262,144 files, of 64 bytes each; a frame's window has at most 32 MiB.
package chunked

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"machine-pivot/internal/osimage/imagefault"
)

// The annotations of a layer: the digest of the compressed table, and positions in the blob: offset, length,
// decompressed length, and the table's type, as decimal numbers separated by colons.
const (
	tableDigest      = "manifest-checksum"
	tablePosition    = "manifest-position"
	skeletonPosition = "tarsplit-position"
)

// The prefixes of the annotations, as written now and, up to podman 4.3, formerly.
const (
	prefix       = "io.github.containers.zstd-chunked."
	formerPrefix = "io.containers.zstd-chunked."
)

// tableType is the only type of table that there is.
const tableType = 1

// Limits, in bytes.
const (
	maxPacked   = 16 << 20  // a compressed table or skeleton; those of 100,000 files have 6 MiB
	maxUnpacked = 128 << 20 // a decompressed one
	frameHeader = 8         // of a skippable frame
)

// Span is a part of a blob: the bytes from From up to, but not including, To.
type Span struct{ From, To int64 }

// Location says where the table of contents and the skeleton of a layer are in its blob.
type Location struct {
	digest   [sha256.Size]byte // of the compressed table
	table    packed
	skeleton packed // zero if there is none
	objects  bool   // see OfObjects
}

// packed is a compressed part of a blob.
type packed struct{ at, length, unpacked int64 }

// Locate reads the annotations of a layer with a blob of size bytes. found is false if it is not in the format
// zstd:chunked.
func Locate(annotations map[string]string, size int64) (l Location, found bool, err error) {
	digest, found := annotations[prefix+tableDigest]
	at := prefix
	if !found {
		at = formerPrefix
		if digest, found = annotations[at+tableDigest]; !found {
			return l, false, nil
		}
	}
	sum, err := parseDigest(digest)
	if err != nil {
		return l, true, damaged("the digest of its table of contents: %w", err)
	}
	l.digest = sum
	numbers, err := parseNumbers(annotations[at+tablePosition], 4)
	if err != nil || numbers[3] != tableType {
		return l, true, damaged("the position %q of its table of contents is malformed", annotations[at+tablePosition])
	}
	l.table = packed{numbers[0], numbers[1], numbers[2]}
	if text, has := annotations[at+skeletonPosition]; has {
		numbers, err := parseNumbers(text, 3)
		if err != nil {
			return l, true, damaged("the position %q of its skeleton is malformed", text)
		}
		l.skeleton = packed{numbers[0], numbers[1], numbers[2]}
	}
	return l, true, l.check(size)
}

// TableDigest returns the digest of a layer's table, as its annotations say. It is "" if there is none or
// it is malformed.
func TableDigest(annotations map[string]string) string {
	text := cmp.Or(annotations[prefix+tableDigest], annotations[formerPrefix+tableDigest])
	if _, err := parseDigest(text); err != nil {
		return ""
	}
	return text
}

func (l Location) check(size int64) error {
	switch {
	case l.table.at <= frameHeader, !l.table.fits(size):
		return damaged("its table of contents cannot be at %d bytes with %d of the blob's %d", l.table.at, l.table.length, size)
	case l.skeleton != packed{} && (l.skeleton.at < l.table.at+l.table.length || !l.skeleton.fits(size)):
		return damaged("its skeleton cannot be at %d bytes with %d of the blob's %d", l.skeleton.at, l.skeleton.length, size)
	}
	return nil
}

// fits reports whether the part obeys the limits and ends within a blob of size bytes.
func (p packed) fits(size int64) bool {
	return 0 < p.length && p.length <= maxPacked && 0 < p.unpacked && p.unpacked <= maxUnpacked && p.at <= size-p.length
}

// OfObjects returns the location of a layer of objects. They are verified one by one, by checksums that the image's
// commit has, with owner and mode. So its archive need not be the same byte for byte, and its headers are made from the
// table: the skeleton is not fetched. Only what such files need is in these headers, no times and extended attributes.
func (l Location) OfObjects() Location {
	l.objects, l.skeleton = true, packed{}
	return l
}

// Memory returns how many bytes of memory the contents of a usual layer take, with what decompresses them.
func (l Location) Memory() int64 {
	return l.table.length + l.skeleton.length + l.table.unpacked/3 + memoryOf(max(l.table.unpacked, l.skeleton.unpacked))
}

// end returns where the archive's frames end in the blob.
func (l Location) end() int64 { return l.table.at - frameHeader }

// Spans returns what Read needs: two spans even if there is only a table, so that the answer shows
// whether the registry gives several at once.
func (l Location) Spans() []Span {
	table := Span{l.table.at, l.table.at + l.table.length}
	if l.skeleton == (packed{}) {
		middle := table.From + l.table.length/2
		if middle == table.From {
			return []Span{table}
		}
		return []Span{{table.From, middle}, {middle, table.To}}
	}
	return []Span{table, {l.skeleton.at, l.skeleton.at + l.skeleton.length}}
}

func parseNumbers(text string, n int) ([]int64, error) {
	fields := strings.Split(text, ":")
	if len(fields) != n {
		return nil, fmt.Errorf("it has not %d numbers", n)
	}
	numbers := make([]int64, n)
	for i, field := range fields {
		number, err := strconv.ParseUint(field, 10, 63)
		if err != nil {
			return nil, err
		}
		numbers[i] = int64(number)
	}
	return numbers, nil
}

func parseDigest(text string) (sum [sha256.Size]byte, err error) {
	digits, ok := strings.CutPrefix(text, "sha256:")
	if !ok || len(digits) != hex.EncodedLen(len(sum)) {
		return sum, fmt.Errorf("%q is not a SHA-256 digest", text)
	}
	_, err = hex.Decode(sum[:], []byte(digits))
	return sum, err
}

// damaged returns an error for a layer with unusable parts.
func damaged(format string, args ...any) error { return imagefault.Damaged(format, args...) }
