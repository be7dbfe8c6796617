package layer

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"machine-pivot/internal/ostree"
)

const (
	maxChunkedFiles = 1 << 18  // files with content in a layer; the largest layers have a third
	maxAhead        = 4 << 20  // bytes that a parser may read ahead of what it has parsed
	maxChunkedTotal = 64 << 30 // bytes of all files; as much as a layer may unpack to
	maxFrameWindow  = 32 << 20 // bytes of a frame's window; usual builders have 8 MiB, those of Debian 12 have 32
	// usualFrameWindow is the size up to which JSON is decompressed at once, in bytes: that of a usual builder's window.
	usualFrameWindow = 8 << 20
)

// ChunkedFile is a file with content, as the table describes it.
type ChunkedFile struct {
	Name   string // in the archive
	Size   int64  // bytes, at least 1
	Digest [sha256.Size]byte
}

// Chunked is what the table of a layer in the format zstd:chunked says, and its skeleton. Content that the host has
// already is taken from there, and only the rest of the layer is fetched.
//
// The format is that of go.podman.io/storage, pkg/chunked. The layer is a tar archive, compressed with zstd in such a way
// that the content of each file has frames of its own. Skippable frames after the archive have a table of contents, with each
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
type Chunked struct {
	files    []chunkedContent
	skeleton []byte // compressed; nil if there is none
	table    []byte // compressed; nil unless headers are made from it
	unpacked int64  // bytes of the decompressed one of both
	end      int64  // where the archive's frames end in the blob
}

// chunkedContent is the content of a file: its size, its place in the blob, and the object of the host
// that has it too.
type chunkedContent struct {
	size     int64
	from, to int64
	local    ostree.ObjectName // zero if there is none
}

// ReadChunked reads and checks the table and the skeleton. from is the concatenation of the location's
// spans. find is called with each file with content, in order, and returns an object on the host that
// has this content, if there is one.
func ReadChunked(l ChunkedLocation, from io.Reader, find func(ChunkedFile) (ostree.ObjectName, bool)) (*Chunked, error) {
	table, err := readPackedPart(from, l.table)
	if err != nil {
		return nil, err
	}
	if sha256.Sum256(table) != l.digest {
		return nil, damaged("its table of contents has another digest than its manifest says")
	}
	c := &Chunked{end: l.end()}
	if l.objects {
		c.table, c.unpacked = table, l.table.unpacked
	} else if l.skeleton != (packedPart{}) {
		if c.skeleton, err = readPackedPart(from, l.skeleton); err != nil {
			return nil, err
		}
		c.unpacked = l.skeleton.unpacked
	}
	if err := c.parse(table, l.table.unpacked, find); err != nil {
		return nil, damaged("its table of contents: %w", err)
	}
	return c, nil
}

func readPackedPart(from io.Reader, p packedPart) ([]byte, error) {
	data := make([]byte, p.length)
	_, err := io.ReadFull(from, data)
	return data, err
}

// unpackPart returns a reader of compressed JSON, which has at most size bytes.
func unpackPart(data []byte, size int64) (*json.Decoder, func(), error) {
	plain, done, err := decompressPart(data, size)
	if err != nil {
		return nil, nil, err
	}
	text := &aheadReader{from: io.LimitReader(plain, size)}
	text.parser = json.NewDecoder(text)
	return text.parser, done, nil
}

// decompressPart returns the content of compressed data, at most size bytes. What is smaller than a usual window is
// decompressed at once. A stream would take a whole window: builders that do not know a frame's size reserve their
// level's window. memoryOf has what it takes.
func decompressPart(data []byte, size int64) (io.Reader, func(), error) {
	if size > usualFrameWindow {
		z, err := newFrameDecoder()
		if err != nil {
			return nil, nil, err
		}
		if err := z.Reset(bytes.NewReader(data)); err != nil {
			z.Close()
			return nil, nil, err
		}
		return z, z.Close, nil
	}
	z, err := newFrameDecoder(zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return nil, nil, err
	}
	defer z.Close()
	plain, err := z.DecodeAll(data, make([]byte, 0, size))
	return bytes.NewReader(plain), func() {}, err
}

// windowMemory returns how many bytes of memory decompress takes for size bytes.
func windowMemory(size int64) int64 { return min(size, usualFrameWindow) }

func newFrameDecoder(more ...zstd.DOption) (*zstd.Decoder, error) {
	return zstd.NewReader(nil, append(more, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxFrameWindow))...)
}

// aheadReader limits how far a parser reads ahead, and so how large a value may be.
type aheadReader struct {
	from   io.Reader
	parser *json.Decoder
	read   int64
}

// Read implements io.Reader.
func (a *aheadReader) Read(p []byte) (int, error) {
	if a.read-a.parser.InputOffset() > maxAhead {
		return 0, fmt.Errorf("it has a value of more than %d bytes", maxAhead)
	}
	n, err := a.from.Read(p[:min(len(p), maxAhead)])
	a.read += int64(n)
	return n, err
}

// parse parses the table: a JSON object with the list "entries" and the skeleton's digest.
func (c *Chunked) parse(table []byte, size int64, find func(ChunkedFile) (ostree.ObjectName, bool)) error {
	in, done, err := unpackPart(table, size)
	if err != nil {
		return err
	}
	defer done()
	return eachMember(in, func(key json.Token) (stop bool, err error) {
		switch key {
		case entriesKey:
			return false, c.parseEntries(in, find)
		case "tarSplitDigest":
			return false, c.checkSkeleton(in)
		}
		return false, in.Decode(new(json.RawMessage))
	})
}

// entriesKey is the key of the list of entries.
const entriesKey = "entries"

// eachMember calls visit for each member of a JSON object, behind its key. visit reads the value, or stops.
func eachMember(in *json.Decoder, visit func(key json.Token) (stop bool, err error)) error {
	if err := expectDelim(in, json.Delim('{')); err != nil {
		return err
	}
	for in.More() {
		key, err := in.Token()
		if err != nil {
			return err
		}
		if stop, err := visit(key); err != nil || stop {
			return err
		}
	}
	return expectDelim(in, json.Delim('}'))
}

func expectDelim(in *json.Decoder, want json.Delim) error {
	got, err := in.Token()
	if err == nil && got != want {
		err = fmt.Errorf("it has %v in place of %v", got, want)
	}
	return err
}

// checkSkeleton checks the skeleton's digest. It is checked for a better message only: a wrong
// skeleton gives a wrong archive.
func (c *Chunked) checkSkeleton(in *json.Decoder) error {
	var text string
	if err := in.Decode(&text); err != nil || text == "" || c.skeleton == nil {
		return err
	}
	want, err := parseDigest(text)
	if err == nil && sha256.Sum256(c.skeleton) != want {
		err = errors.New("the skeleton has another digest")
	}
	return err
}

// tableEntry has the fields of an entry that are needed here. A large file is followed by entries
// of the type "chunk", which divide the content; they are ignored.
type tableEntry struct {
	Type   string `json:"type"`
	Name   string `json:"name"`
	Link   string `json:"linkName"`
	Mode   int64  `json:"mode"`
	UID    int    `json:"uid"`
	GID    int    `json:"gid"`
	Size   int64  `json:"size"`
	Digest string `json:"digest"`
	From   int64  `json:"offset"`
	To     int64  `json:"endOffset"`
}

// regularType is the type of an entry for a regular file.
const regularType = "reg"

func (c *Chunked) parseEntries(in *json.Decoder, find func(ChunkedFile) (ostree.ObjectName, bool)) error {
	if err := expectDelim(in, json.Delim('[')); err != nil {
		return err
	}
	last, total := int64(0), int64(0)
	for in.More() {
		var e tableEntry
		if err := in.Decode(&e); err != nil {
			return err
		}
		if e.Type != regularType || e.Size == 0 {
			continue
		}
		if e.Size < 0 || e.From <= last || e.To <= e.From || e.To > c.end {
			return fmt.Errorf("%.100q cannot have %d bytes at %d to %d", e.Name, e.Size, e.From, e.To)
		}
		last = e.To
		if total += e.Size; e.Size > maxChunkedTotal || total > maxChunkedTotal {
			return fmt.Errorf("its files have more than %d bytes", int64(maxChunkedTotal))
		}
		if len(c.files) == maxChunkedFiles {
			return fmt.Errorf("it has more than %d files", maxChunkedFiles)
		}
		added := chunkedContent{size: e.Size, from: e.From, to: e.To}
		if digest, err := parseDigest(e.Digest); err == nil {
			if object, found := find(ChunkedFile{e.Name, e.Size, digest}); found {
				added.local = object
			}
		}
		c.files = append(c.files, added)
	}
	return expectDelim(in, json.Delim(']'))
}
