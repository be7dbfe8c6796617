package layer

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
	chunkedPrefix       = "io.github.containers.zstd-chunked."
	formerChunkedPrefix = "io.containers.zstd-chunked."
)

// tableType is the only type of table that there is.
const tableType = 1

// Limits, in bytes.
const (
	maxPackedPart   = 16 << 20  // a compressed table or skeleton; those of 100,000 files have 6 MiB
	maxUnpackedPart = 128 << 20 // a decompressed one
	frameHeader     = 8         // of a skippable frame
)

// Span is a part of a blob: the bytes from From up to, but not including, To.
type Span struct{ From, To int64 }

// ChunkedLocation says where the table of contents and the skeleton of a layer are in its blob.
type ChunkedLocation struct {
	digest   [sha256.Size]byte // of the compressed table
	table    packedPart
	skeleton packedPart // zero if there is none
	objects  bool       // see OfObjects
}

// packedPart is a compressed part of a blob.
type packedPart struct{ at, length, unpacked int64 }

// LocateChunked reads the annotations of a layer with a blob of size bytes. found is false if it is not in the format
// zstd:chunked.
func LocateChunked(annotations map[string]string, size int64) (l ChunkedLocation, found bool, err error) {
	digest, found := annotations[chunkedPrefix+tableDigest]
	at := chunkedPrefix
	if !found {
		at = formerChunkedPrefix
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
	l.table = packedPart{numbers[0], numbers[1], numbers[2]}
	if text, has := annotations[at+skeletonPosition]; has {
		numbers, err := parseNumbers(text, 3)
		if err != nil {
			return l, true, damaged("the position %q of its skeleton is malformed", text)
		}
		l.skeleton = packedPart{numbers[0], numbers[1], numbers[2]}
	}
	return l, true, l.check(size)
}

// TableDigest returns the digest of a layer's table, as its annotations say. It is "" if there is none or
// it is malformed.
func TableDigest(annotations map[string]string) string {
	text := cmp.Or(annotations[chunkedPrefix+tableDigest], annotations[formerChunkedPrefix+tableDigest])
	if _, err := parseDigest(text); err != nil {
		return ""
	}
	return text
}

func (l ChunkedLocation) check(size int64) error {
	switch {
	case l.table.at <= frameHeader, !l.table.fits(size):
		return damaged("its table of contents cannot be at %d bytes with %d of the blob's %d", l.table.at, l.table.length, size)
	case l.skeleton != packedPart{} && (l.skeleton.at < l.table.at+l.table.length || !l.skeleton.fits(size)):
		return damaged("its skeleton cannot be at %d bytes with %d of the blob's %d", l.skeleton.at, l.skeleton.length, size)
	}
	return nil
}

// fits reports whether the part obeys the limits and ends within a blob of size bytes.
func (p packedPart) fits(size int64) bool {
	return 0 < p.length && p.length <= maxPackedPart && 0 < p.unpacked && p.unpacked <= maxUnpackedPart && p.at <= size-p.length
}

// OfObjects returns the location of a layer of objects. They are verified one by one, by checksums that the image's
// commit has, with owner and mode. So its archive need not be the same byte for byte, and its headers are made from the
// table: the skeleton is not fetched. Only what such files need is in these headers, no times and extended attributes.
func (l ChunkedLocation) OfObjects() ChunkedLocation {
	l.objects, l.skeleton = true, packedPart{}
	return l
}

// Memory returns how many bytes of memory the contents of a usual layer take, with what decompresses them.
func (l ChunkedLocation) Memory() int64 {
	return l.table.length + l.skeleton.length + l.table.unpacked/3 + windowMemory(max(l.table.unpacked, l.skeleton.unpacked))
}

// end returns where the archive's frames end in the blob.
func (l ChunkedLocation) end() int64 { return l.table.at - frameHeader }

// Spans returns what ReadChunked needs: two spans even if there is only a table, so that the answer shows
// whether the registry gives several at once.
func (l ChunkedLocation) Spans() []Span {
	table := Span{l.table.at, l.table.at + l.table.length}
	if l.skeleton == (packedPart{}) {
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
