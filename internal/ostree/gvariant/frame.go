package gvariant

import (
	"bytes"
	"encoding/binary"
	"errors"
)

// errNotNormal is the error for any deviation from the normal form.
var errNotNormal = errors.New("not in normal form")

// frame iterates over the members of a container and checks their framing: alignment,
// padding and offsets. It does not check the members' content.
type frame struct {
	of   *typ
	data []byte // the container

	count int // number of members
	limit int // end of the last member; offsets or padding follow
	width int // size of a framing offset in bytes

	given  int    // how many members next has returned
	framed int    // how many of these, in a tuple, have a framing offset
	at     int    // end of the member that next returned last
	typ    *typ   // its type
	value  []byte // its bytes
	err    error
}

// openFrame returns a frame positioned before the first member. If the type has a fixed size,
// data must have that size.
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
	// The type string is at the end and has a maximum length, so only that part is searched.
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

// next advances to the next member. It returns false at the end and on an error, which is in
// f.err.
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

// memberEnd returns the end of the next member, which begins at start.
func (f *frame) memberEnd(start int) (end int, ok bool) {
	switch {
	case f.typ.size > 0:
		return start + f.typ.size, true
	case f.of.kind == 'a':
		return f.offset(f.limit + f.given*f.width)
	case f.given == f.count-1:
		return f.limit, true
	}
	f.framed++ // a tuple stores its offsets in reverse order
	return f.offset(len(f.data) - f.framed*f.width)
}

// checkEnd checks that there is nothing between the last member and the offsets,
// except the padding of a tuple of fixed size.
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
