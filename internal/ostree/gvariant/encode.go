package gvariant

import (
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
)

// Encode serializes a value of the type in normal form. The value must consist of the Go types that Decode returns. It
// may also contain a Value, which is copied, and an iter.Seq[any] for an array with elements that are not all in memory
// at once.
func Encode(text string, value any) ([]byte, error) {
	t, err := parseType(text)
	if err != nil {
		return nil, cannotEncode(text, err)
	}
	return Type{t}.Encode(value)
}

// Encode does what the function Encode does, for this type.
func (t Type) Encode(value any) ([]byte, error) {
	data, err := appendValue(nil, t.typ, value)
	if err != nil {
		return nil, cannotEncode(t.typ.text, err)
	}
	return data, nil
}

func cannotEncode(text string, err error) error {
	return fmt.Errorf("cannot encode GVariant of type %s: %w", text, err)
}

// appendValue appends a value. len(data) must be aligned for the type: then alignment in data
// is also alignment within each container.
func appendValue(data []byte, t *typ, value any) ([]byte, error) {
	switch v := value.(type) {
	case byte:
		return append(data, v), expect(t, "y", value)
	case bool:
		return append(data, map[bool]byte{true: 1}[v]), expect(t, "b", value)
	case uint32:
		return binary.LittleEndian.AppendUint32(data, v), expect(t, "u", value)
	case uint64:
		return binary.LittleEndian.AppendUint64(data, v), expect(t, "t", value)
	case string:
		return append(append(data, v...), 0), expect(t, "s", value)
	case []byte:
		return append(data, v...), expect(t, "ay", value)
	case Variant:
		return appendVariant(data, t, v)
	case Value:
		return append(data, v.data...), expect(t, v.Type(), value)
	case []any:
		return appendArray(data, t, slices.Values(v))
	case iter.Seq[any]:
		return appendArray(data, t, v)
	case Tuple:
		return appendTuple(data, t, v)
	}
	return nil, mismatch(t, value)
}

// expect returns an error unless t is the type with the type string is.
func expect(t *typ, is string, value any) error {
	if t.text == is {
		return nil
	}
	return mismatch(t, value)
}

func mismatch(t *typ, value any) error { return fmt.Errorf("%T is not a %s", value, t.text) }

// pad appends zeros until the length is aligned for a type.
func pad(data []byte, t *typ) []byte {
	for len(data)%t.align != 0 {
		data = append(data, 0)
	}
	return data
}

func appendVariant(data []byte, t *typ, v Variant) ([]byte, error) {
	inner, err := parseType(v.Type)
	if err == nil {
		err = expect(t, "v", v)
	}
	if err == nil {
		data, err = appendValue(data, inner, v.Value)
	}
	return append(append(data, 0), v.Type...), err
}

func appendArray(data []byte, t *typ, values iter.Seq[any]) ([]byte, error) {
	if t.kind != 'a' {
		return nil, mismatch(t, values)
	}
	element, start := t.members[0], len(data)
	var ends []int
	for v := range values {
		var err error
		if data, err = appendValue(pad(data, element), element, v); err != nil {
			return nil, err
		}
		if element.size == 0 {
			ends = append(ends, len(data)-start)
		}
	}
	if element.size > 0 {
		return data, nil
	}
	return appendOffsets(data, start, ends), nil
}

func appendTuple(data []byte, t *typ, values Tuple) ([]byte, error) {
	if (t.kind != '(' && t.kind != '{') || len(t.members) != len(values) {
		return nil, mismatch(t, values)
	}
	start := len(data)
	var few [8]int // enough for ostree's types, so that nothing is allocated
	ends := few[:0]
	for i, m := range t.members {
		var err error
		if data, err = appendValue(pad(data, m), m, values[i]); err != nil {
			return nil, err
		}
		if m.size == 0 && i < len(t.members)-1 {
			ends = append(ends, len(data)-start)
		}
	}
	if t.size > 0 {
		return pad(data, t), nil
	}
	slices.Reverse(ends)
	return appendOffsets(data, start, ends), nil
}

// appendOffsets appends the framing offsets of a container that begins at start, with the
// smallest width that the size of the whole container allows.
func appendOffsets(data []byte, start int, ends []int) []byte {
	width, size := 1, len(data)-start
	for width < 8 && offsetWidth(size+len(ends)*width) > width {
		width *= 2
	}
	for _, end := range ends {
		var wide [8]byte
		binary.LittleEndian.PutUint64(wide[:], uint64(end))
		data = append(data, wide[:width]...)
	}
	return data
}
