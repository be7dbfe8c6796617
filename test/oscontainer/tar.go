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

// block is the header of an entry. Fields are written one over the other, as the
// exporter's library does, so that what one leaves behind another one shows.
type block [blockSize]byte

func (b *block) name() []byte { return b[0:100] }
func (b *block) link() []byte { return b[157:257] }
func (b *block) size() []byte { return b[124:136] }

// newBlock is the header of an entry in GNU's format, at time 0.
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

// overlay takes the names from another header.
func (b *block) overlay(under block) {
	copy(b.name(), under.name())
	copy(b.link(), under.link())
}

// number writes an octal number, or a binary one if that does not fit.
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

// put writes s, and a NUL after it if there is room. It reports whether s fits.
func put(field []byte, s string) bool {
	if len(s) > len(field) {
		return false
	}
	if n := copy(field, s); n < len(field) {
		field[n] = 0
	}
	return true
}

// putPath writes a path without what means nothing in it: "." and double
// slashes. It is written component by component, up to the first that does not fit.
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

// tarWriter writes layers. Its header blocks are, byte for byte, those of the
// library that the reference implementation exports with: so the digests of its
// layers and ours can be compared.
type tarWriter struct {
	out     io.Writer
	prefix  string // of each name
	literal bool   // names are written as they stand, not as the exporter's library would
	object  block  // the header of the last entry that is not written over another
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

// names writes both names of an entry; one that is too long gets an entry of its
// own before it.
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

// pax writes the records of an extended header.
func (w *tarWriter) pax(records map[string]string) {
	var data bytes.Buffer
	for _, key := range slices.Sorted(maps.Keys(records)) {
		record := " " + key + "=" + records[key] + "\n"
		length := len(record)
		for length != len(record)+len(fmt.Sprint(length)) { // the length counts itself
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

// entry writes a finished header, and content padded to full blocks.
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
