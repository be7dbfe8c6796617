package sepolicy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// Versions of compiled contexts (libselinux, label_file.h). No supported OS uses older ones.
const (
	compiledMagic = 0xf97cff8a
	compiledList  = 5 // a list of patterns, in the byte order of the machine
	compiledTree  = 6 // a tree of directories with patterns, big-endian
)

// errUnknownVersion is the error for a compiled file of an unknown version. The text is then
// read instead, as libselinux does.
var errUnknownVersion = errors.New("unknown version")

// line is a line of a pattern file, read from the text or the compiled form.
type line struct {
	pattern string
	mode    uint32 // file type (S_IFMT), 0 for any
	label   string // may be "<<none>>"
	number  uint32 // position in the file, which determines precedence; not set for literal patterns of a tree
}

// parseCompiled parses compiled contexts (sefcontext_compile(8)). They have the same patterns
// and labels as the text, in the same order.
func parseCompiled(data []byte, room *room) ([]line, error) {
	r := &compiledReader{data: data, order: binary.LittleEndian, room: room, labels: map[string]string{}}
	magic := r.u32()
	if magic != compiledMagic {
		r.data, r.order = data, binary.BigEndian
		if r.u32() != compiledMagic {
			return nil, errors.New("these are no compiled contexts")
		}
	}
	version := r.u32()
	r.skip(uint64(r.u32())) // PCRE's version
	r.skip(uint64(r.u32())) // its architecture
	switch {
	case r.failed():
	case version == compiledList:
		r.list()
	case version == compiledTree:
		r.tree()
	default:
		return nil, fmt.Errorf("%w %d", errUnknownVersion, version)
	}
	if r.err == nil && len(r.data) > 0 {
		r.err = fmt.Errorf("%d bytes follow the patterns", len(r.data))
	}
	return r.lines, r.err
}

// compiledReader consumes data from its start. After the first error all reads return zeros.
type compiledReader struct {
	data     []byte
	order    binary.ByteOrder
	contexts []string
	lines    []line
	labels   map[string]string // each label once
	room     *room
	err      error
}

// add adds a line.
func (r *compiledReader) add(l line) {
	if r.failed() {
		return
	}
	if r.err = r.room.line(len(l.pattern), len(l.label)); r.err != nil {
		return
	}
	if _, known := r.labels[l.label]; !known {
		r.labels[l.label] = l.label
	}
	l.label = r.labels[l.label]
	r.lines = append(r.lines, l)
}

func (r *compiledReader) take(n uint64) []byte {
	if r.err == nil && n > uint64(len(r.data)) {
		r.err = errors.New("the compiled contexts are cut short")
	}
	if r.err != nil {
		return make([]byte, min(n, 8)) // enough for any number
	}
	taken := r.data[:n]
	r.data = r.data[n:]
	return taken
}

func (r *compiledReader) skip(n uint64) { r.take(n) }
func (r *compiledReader) u8() uint8     { return r.take(1)[0] }
func (r *compiledReader) u16() uint16   { return r.order.Uint16(r.take(2)) }
func (r *compiledReader) u32() uint32   { return r.order.Uint32(r.take(4)) }
func (r *compiledReader) u64() uint64   { return r.order.Uint64(r.take(8)) }
func (r *compiledReader) failed() bool  { return r.err != nil }
func (r *compiledReader) text(n uint64) string {
	return strings.TrimSuffix(string(r.take(n)), "\x00")
}

// list reads version 5: a list of directories, then the patterns.
func (r *compiledReader) list() {
	for range r.u32() {
		if r.skip(uint64(r.u32()) + 1); r.failed() {
			return
		}
	}
	count := r.u32()
	for number := uint32(0); number < count && !r.failed(); number++ {
		l := line{number: number}
		l.label = r.text(uint64(r.u32()))
		l.pattern = r.text(uint64(r.u32()))
		l.mode = r.u32() & unix.S_IFMT
		r.skip(3 * 4)           // directory, whether it is literal, length of its prefix
		r.skip(uint64(r.u32())) // of the regular expression
		r.add(l)
	}
}

// tree reads version 6: the labels, then a tree of directories with their patterns.
func (r *compiledReader) tree() {
	r.u64() // number of patterns
	for range r.u32() {
		label := r.text(uint64(r.u16()))
		if r.err == nil {
			r.err = r.room.texts.Take(int64(len(label)) + 16) // there may be many empty ones
		}
		if r.failed() {
			return
		}
		r.contexts = append(r.contexts, label)
	}
	r.node(0)
	sort.SliceStable(r.lines, func(i, j int) bool { return r.lines[i].number < r.lines[j].number })
}

// maxNodes is the maximum depth of directories. libselinux writes three levels.
const maxNodes = 16

func (r *compiledReader) node(depth int) {
	if depth > maxNodes {
		r.err = errors.New("the compiled contexts are too deep")
		return
	}
	r.skip(uint64(r.u16())) // the directory's name
	for count := r.u32(); count > 0 && !r.failed(); count-- {
		l := line{label: r.context()}
		l.pattern = r.text(uint64(r.u16()))
		r.skip(uint64(r.u16())) // the literal path
		l.mode = r.kind()
		r.add(l)
	}
	for count := r.u32(); count > 0 && !r.failed(); count-- {
		l := line{label: r.context(), number: r.u32()}
		l.pattern = r.text(uint64(r.u16()))
		r.skip(2) // length of its prefix
		l.mode = r.kind()
		r.skip(uint64(r.u32())) // of the regular expression
		r.add(l)
	}
	for count := r.u32(); count > 0 && !r.failed(); count-- {
		r.node(depth + 1)
	}
}

// context reads the index of a label, counted from 1, and returns the label.
func (r *compiledReader) context() string {
	n := int(r.u32())
	if r.failed() || n < 1 || n > len(r.contexts) {
		r.fail("a label that is not in its table")
		return ""
	}
	return r.contexts[n-1]
}

// kind reads the number of a file type and returns the type (S_IFMT), 0 for any.
func (r *compiledReader) kind() uint32 {
	kinds := [...]uint32{0, unix.S_IFDIR, unix.S_IFCHR, unix.S_IFBLK, unix.S_IFSOCK, unix.S_IFIFO, unix.S_IFLNK, unix.S_IFREG}
	n := int(r.u8())
	if n >= len(kinds) {
		r.fail("a file type that does not exist")
		return 0
	}
	return kinds[n]
}

func (r *compiledReader) fail(reason string) {
	if r.err == nil {
		r.err = errors.New("the compiled contexts have " + reason)
	}
}
