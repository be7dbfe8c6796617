package oscontainer

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

const blockSize = 512

// block is the header of an entry. Fields may be written over older content without clearing it,
// as in the exporter's library, so that remains of the older content are preserved.
type block [blockSize]byte

func (b *block) name() []byte { return b[0:100] }
func (b *block) link() []byte { return b[157:257] }
func (b *block) size() []byte { return b[124:136] }

// newBlock returns the header of an entry in GNU format, with time 0.
func newBlock(kind byte, mode int64, uid, gid int) block {
	var b block
	number(b[100:108], mode)
	number(b[108:116], int64(uid))
	number(b[116:124], int64(gid))
	number(b[136:148], 0)
	b[156] = kind
	copy(b[257:], "ustar  ")
	return b
}

// overlay copies the names of another header.
func (b *block) overlay(under block) {
	copy(b.name(), under.name())
	copy(b.link(), under.link())
}

// number writes a number in octal, or in binary if it does not fit.
func number(field []byte, n int64) {
	if octal := fmt.Sprintf("%0*o\x00", len(field)-1, n); len(octal) == len(field) {
		copy(field, octal)
		return
	}
	for i := range field {
		field[len(field)-1-i] = byte(n)
		n >>= 8
	}
	field[0] |= 0x80
}

// put writes s, followed by a NUL if there is room. It reports whether s fits.
func put(field []byte, s string) bool {
	if len(s) > len(field) {
		return false
	}
	if n := copy(field, s); n < len(field) {
		field[n] = 0
	}
	return true
}

// putPath writes a path without redundant "." and double slashes. It writes component by
// component, up to the first that does not fit, and reports whether all fit.
func putPath(field []byte, path string, link bool) bool {
	var parts []string
	for i, c := range strings.Split(path, "/") {
		switch {
		case i == 0 && c == "" && path != "": // absolute
			parts = append(parts, "/")
			continue
		case c == "", c == "." && !(i == 0 && (link || path == "." || path == "./")):
			continue
		}
		if n := len(parts); n > 0 && parts[n-1] != "/" {
			parts = append(parts, "/")
		}
		parts = append(parts, c)
	}
	if strings.HasSuffix(path, "/") {
		parts = append(parts, "/")
	}
	for _, part := range parts {
		if !put(field, part) {
			return false
		}
		field = field[len(part):]
	}
	return true
}

// tarWriter writes layers. Its header blocks are byte for byte those of the library that the
// reference implementation uses for export, so that the digests of layers can be compared.
type tarWriter struct {
	out     io.Writer
	prefix  string // of each name
	literal bool   // write names unchanged, not as the exporter's library does
	object  block  // the header of the last entry without Entry.over
	err     error
}

// write writes an entry.
func (w *tarWriter) write(e Entry) error {
	body, size, err := e.content()
	if err != nil {
		return err
	}
	defer body.Close()
	if e.Typeflag != tar.TypeReg {
		size = 0
	}
	w.pax(e.PAXRecords)
	b := newBlock(e.Typeflag, e.Mode, e.Uid, e.Gid)
	if e.over {
		b.overlay(w.object)
	}
	if !e.ModTime.IsZero() {
		number(b[136:148], e.ModTime.Unix())
	}
	number(b.size(), size)
	w.names(&b, w.prefix+e.Name, e.Linkname)
	if !e.over {
		w.object = b
	}
	w.entry(&b, body, size)
	if w.err != nil {
		return fmt.Errorf("%s: %w", e.Name, w.err)
	}
	return nil
}

// names writes both names of an entry. A name that is too long is written to a separate entry
// before it.
func (w *tarWriter) names(b *block, name, link string) {
	if w.literal {
		if !put(b.name(), name) {
			put(b.name(), name[:len(b.name())])
			w.long(tar.TypeGNULongName, name)
		}
	} else if !putPath(b.name(), name, false) {
		start := name[:min(len(name), len(b.name()))]
		for !utf8.ValidString(start) {
			start = start[:len(start)-1]
		}
		putPath(b.name(), start, false)
		w.long(tar.TypeGNULongName, name)
	}
	if link != "" && !(strings.Contains(link, "//") && put(b.link(), link)) && !putPath(b.link(), link, true) {
		w.long(tar.TypeGNULongLink, link)
	}
}

func (w *tarWriter) long(kind byte, name string) {
	b := newBlock(kind, 0o644, 0, 0)
	put(b.name(), "././@LongLink")
	size := int64(len(name) + 1)
	number(b.size(), size)
	w.entry(&b, strings.NewReader(name+"\x00"), size)
}

// pax writes an extended header with the given records, if there are any.
func (w *tarWriter) pax(records map[string]string) {
	var data bytes.Buffer
	for _, key := range slices.Sorted(maps.Keys(records)) {
		record := " " + key + "=" + records[key] + "\n"
		length := len(record)
		for length != len(record)+len(fmt.Sprint(length)) { // the length includes its own digits
			length = len(record) + len(fmt.Sprint(length))
		}
		fmt.Fprintf(&data, "%d%s", length, record)
	}
	if data.Len() == 0 {
		return
	}
	var b block
	number(b.size(), int64(data.Len()))
	number(b[136:148], 0)
	b[156] = tar.TypeXHeader
	copy(b[257:], "ustar\x0000")
	w.entry(&b, &data, int64(data.Len()))
}

// entry writes a header with its checksum, and the content padded to full blocks.
func (w *tarWriter) entry(b *block, body io.Reader, size int64) {
	if w.err != nil {
		return
	}
	copy(b[148:156], "        ")
	sum := 0
	for _, c := range b {
		sum += int(c)
	}
	number(b[148:156], int64(sum))
	if _, w.err = w.out.Write(b[:]); w.err != nil {
		return
	}
	if _, w.err = io.CopyN(w.out, body, size); w.err != nil {
		return
	}
	_, w.err = w.out.Write(make([]byte, -size&(blockSize-1)))
}

// end writes the two empty blocks that end an archive.
func (w *tarWriter) end() error {
	_, err := w.out.Write(make([]byte, 2*blockSize))
	return err
}
