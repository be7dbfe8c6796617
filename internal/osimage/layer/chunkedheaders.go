package layer

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
)

// chunkedHeaders returns what an archive has between the contents of its files, gap by gap.
type chunkedHeaders interface {
	// segment returns the next bytes of the present gap, or nil at its end.
	segment() ([]byte, error)
	// take ends a gap. The file after it must have the given size.
	take(size int64) error
	// atEnd reports, at the end of a gap, that no file follows.
	atEnd() bool
	// exact reports whether the bytes are those of the layer's archive.
	exact() bool
	close()
}

// openHeaders opens the source of the gaps that are not fetched. It returns nil if there is none: then all are.
func (c *Chunked) openHeaders() (chunkedHeaders, error) {
	switch {
	case c.skeleton != nil:
		return openSkeleton(c.skeleton, c.unpacked)
	case c.table != nil:
		return openMadeHeaders(c.table, c.unpacked)
	}
	return nil, nil
}

// skipGap reads the rest of a gap and returns its size in bytes.
func skipGap(h chunkedHeaders) (size int64, err error) {
	for {
		bytes, err := h.segment()
		if err != nil || bytes == nil {
			return size, err
		}
		size += int64(len(bytes))
	}
}

// errHeaders is the error for headers that do not fit the table's files.
var errHeaders = errors.New("its headers do not fit its table of contents")

const blockSize = 512 // of an archive: contents and archives are padded to it

// madeHeaders makes the headers of an archive from its table.
type madeHeaders struct {
	in      *json.Decoder // in the list of entries
	done    func()
	buffer  bytes.Buffer
	padding int64 // bytes after the last file
	file    int64 // size of the file after the gap that was read last
	closing bool  // all entries were read
	ended   bool
}

// openMadeHeaders reads a compressed table of at most size bytes once more.
func openMadeHeaders(table []byte, size int64) (chunkedHeaders, error) {
	in, done, err := unpackPart(table, size)
	if err != nil {
		return nil, err
	}
	if err := enterEntries(in); err != nil {
		done()
		return nil, err
	}
	return &madeHeaders{in: in, done: done}, nil
}

// enterEntries reads up to the first entry.
func enterEntries(in *json.Decoder) error {
	found := false
	err := eachMember(in, func(key json.Token) (stop bool, err error) {
		if key != entriesKey {
			return false, in.Decode(new(json.RawMessage))
		}
		found = true
		return true, expectDelim(in, json.Delim('['))
	})
	if err == nil && !found {
		return errHeaders
	}
	return err
}

func (m *madeHeaders) segment() ([]byte, error) {
	if m.ended || m.file > 0 {
		return nil, nil
	}
	m.buffer.Reset()
	if m.padding > 0 {
		m.buffer.Write(make([]byte, m.padding))
		m.padding = 0
		return m.buffer.Bytes(), nil
	}
	for m.in.More() {
		var e tableEntry
		if err := m.in.Decode(&e); err != nil {
			return nil, err
		}
		kind, is := e.kind()
		if !is {
			continue
		}
		if e.Type == regularType && e.Size > 0 {
			m.file = e.Size
		}
		return m.header(tar.Header{
			Typeflag: kind, Name: e.Name, Linkname: e.Link, Mode: e.Mode, Uid: e.UID, Gid: e.GID, Size: m.file, Format: tar.FormatPAX,
		})
	}
	if m.closing {
		m.ended = true
		return nil, nil
	}
	m.closing = true
	return make([]byte, 2*blockSize), nil // the mark of the end
}

// kind returns the type of an entry in an archive. is is false if it has no header of its own.
func (e tableEntry) kind() (flag byte, is bool) {
	switch e.Type {
	case regularType:
		return tar.TypeReg, true
	case "hardlink":
		return tar.TypeLink, true
	case "symlink":
		return tar.TypeSymlink, true
	case "dir":
		return tar.TypeDir, true
	case "char":
		return tar.TypeChar, true
	case "block":
		return tar.TypeBlock, true
	case "fifo":
		return tar.TypeFifo, true
	}
	return 0, false // part of a large file
}

func (m *madeHeaders) header(h tar.Header) ([]byte, error) {
	// Its content comes from elsewhere, so the writer is not used any further.
	if err := tar.NewWriter(&m.buffer).WriteHeader(&h); err != nil {
		return nil, err
	}
	return m.buffer.Bytes(), nil
}

func (m *madeHeaders) take(size int64) error {
	if m.file != size {
		return errHeaders
	}
	m.file, m.padding = 0, -size&(blockSize-1)
	return nil
}

func (m *madeHeaders) atEnd() bool { return m.ended }
func (m *madeHeaders) exact() bool { return false }
func (m *madeHeaders) close()      { m.done() }
