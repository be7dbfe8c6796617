package gvariant

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// errNotNormal is any deviation from the normal form.
var errNotNormal = errors.New("not in normal form")

// frame goes over the members of a container, in order, and checks how they are
// framed: alignment, padding and offsets. What is in a member it does not look at.
type frame struct {
	of   *typ
	data []byte // the container

	count int // of members
	limit int // where the last one ends: offsets or padding follow
	width int // of an offset

	given  int    // members
	framed int    // of them, those of a tuple whose end an offset says
	at     int    // where the last one ends
	typ    *typ   // of that
	value  []byte // and its bytes
	err    error
}

// openFrame begins with a container. That it has the size of its type was checked.
func openFrame(t *typ, data []byte) frame {
	f := frame{of: t, data: data, limit: len(data), width: offsetWidth(len(data))}
	switch t.kind {
	case 'a':
		f.err = f.openArray()
	case 'm':
		f.err = f.openMaybe()
	case 'v':
		f.err = f.openVariant()
	default:
		f.count = len(t.members)
		if f.limit -= t.offsets * f.width; f.limit < 0 {
			f.err = errNotNormal
		}
	}
	return f
}

func (f *frame) openArray() error {
	n := len(f.data)
	if size := f.of.members[0].size; size > 0 {
		f.count = n / size
		if n%size != 0 {
			return errNotNormal
		}
		return nil
	}
	if n == 0 {
		return nil
	}
	end, ok := f.offset(n - f.width)
	if !ok || end > n-f.width || (n-end)%f.width != 0 {
		return errNotNormal
	}
	f.limit, f.count = end, (n-end)/f.width
	return nil
}

func (f *frame) openMaybe() error {
	n, size := len(f.data), f.of.members[0].size
	switch {
	case n == 0:
		return nil
	case size > 0 && n != size, size == 0 && f.data[n-1] != 0:
		return errNotNormal
	case size == 0:
		f.limit--
	}
	f.count = 1
	return nil
}

func (f *frame) openVariant() error {
	// No type is longer, so no more than this is searched.
	from := max(len(f.data)-maxType-1, 0)
	i := bytes.LastIndexByte(f.data[from:], 0)
	if i < 0 {
		return errNotNormal
	}
	f.limit, f.count = from+i, 1
	var err error
	f.typ, err = parseType(string(f.data[f.limit+1:]))
	return err
}

// offset reads the framing offset at pos.
func (f *frame) offset(pos int) (end int, ok bool) {
	if pos < 0 {
		return 0, false
	}
	var wide [8]byte
	copy(wide[:], f.data[pos:pos+f.width])
	n := binary.LittleEndian.Uint64(wide[:])
	return int(n), n <= uint64(len(f.data))
}

// next goes to the next member; false at the end, and if something is wrong.
func (f *frame) next() bool {
	if f.err != nil {
		return false
	}
	if f.given == f.count {
		f.err = f.checkEnd()
		return false
	}
	f.typ = f.memberType()
	start := align(f.at, f.typ.align)
	end, ok := f.memberEnd(start)
	if !ok || start > end || end > f.limit || !zeroes(f.data[f.at:start]) {
		f.err = errNotNormal
		return false
	}
	f.value, f.at = f.data[start:end], end
	f.given++
	return true
}

func (f *frame) memberType() *typ {
	switch f.of.kind {
	case 'a', 'm':
		return f.of.members[0]
	case 'v':
		return f.typ
	}
	return f.of.members[f.given]
}

// memberEnd is where the next member ends, which begins at start.
func (f *frame) memberEnd(start int) (end int, ok bool) {
	switch {
	case f.typ.size > 0:
		return start + f.typ.size, true
	case f.of.kind == 'a':
		return f.offset(f.limit + f.given*f.width)
	case f.given == f.count-1:
		return f.limit, true
	}
	f.framed++ // the offsets of a tuple stand in reverse order
	return f.offset(len(f.data) - f.framed*f.width)
}

// checkEnd checks that nothing is between the last member and the offsets, or
// that it is the padding of a tuple of fixed size.
func (f *frame) checkEnd() error {
	rest := f.data[f.at:f.limit]
	if f.of.size == 0 && len(rest) > 0 || !zeroes(rest) {
		return errNotNormal
	}
	return nil
}

func zeroes(data []byte) bool {
	for _, b := range data {
		if b != 0 {
			return false
		}
	}
	return true
}
