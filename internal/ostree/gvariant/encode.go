package gvariant

import (
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
)

// Encode writes a value of the type in normal form. The value must be made of the
// Go types that Decode returns. It may also contain a Value, which is copied, and an
// iter.Seq[any] for an array whose elements are not all in memory.
func Encode(text string, value any) (data []byte, err error) {
	t, err := parseType(text)
	if err == nil {
		data, err = encodeValue(t, value)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot encode GVariant of type %s: %w", text, err)
	}
	return data, nil
}

func encodeValue(t *typ, value any) ([]byte, error) {
	switch v := value.(type) {
	case byte:
		return []byte{v}, expect(t, "y", value)
	case bool:
		return []byte{map[bool]byte{true: 1}[v]}, expect(t, "b", value)
	case uint32:
		return binary.LittleEndian.AppendUint32(nil, v), expect(t, "u", value)
	case uint64:
		return binary.LittleEndian.AppendUint64(nil, v), expect(t, "t", value)
	case string:
		return append([]byte(v), 0), expect(t, "s", value)
	case []byte:
		return v, expect(t, "ay", value)
	case Variant:
		inner, err := Encode(v.Type, v.Value)
		if err == nil {
			err = expect(t, "v", value)
		}
		return append(append(inner, 0), v.Type...), err
	case Value:
		return v.data, expect(t, v.Type(), value)
	case []any:
		return encodeArray(t, slices.Values(v))
	case iter.Seq[any]:
		return encodeArray(t, v)
	case Tuple:
		if (t.kind != '(' && t.kind != '{') || len(t.members) != len(v) {
			return nil, mismatch(t, value)
		}
		return encodeTuple(t, v)
	}
	return nil, mismatch(t, value)
}

// expect is an error unless t is the type with the string is.
func expect(t *typ, is string, value any) error {
	if t.text == is {
		return nil
	}
	return mismatch(t, value)
}

func mismatch(t *typ, value any) error { return fmt.Errorf("%T is not a %s", value, t.text) }

// pad appends zeroes up to the alignment of a type.
func pad(data []byte, t *typ) []byte {
	return append(data, make([]byte, align(len(data), t.align)-len(data))...)
}

func encodeArray(t *typ, values iter.Seq[any]) ([]byte, error) {
	if t.kind != 'a' {
		return nil, mismatch(t, values)
	}
	element := t.members[0]
	var data []byte
	var ends []int
	for v := range values {
		inner, err := encodeValue(element, v)
		if err != nil {
			return nil, err
		}
		data = append(pad(data, element), inner...)
		if element.size == 0 {
			ends = append(ends, len(data))
		}
	}
	if element.size > 0 {
		return data, nil
	}
	return appendOffsets(data, ends), nil
}

func encodeTuple(t *typ, values Tuple) ([]byte, error) {
	var data []byte
	var ends []int
	for i, m := range t.members {
		inner, err := encodeValue(m, values[i])
		if err != nil {
			return nil, err
		}
		data = append(pad(data, m), inner...)
		if m.size == 0 && i < len(t.members)-1 {
			ends = append([]int{len(data)}, ends...)
		}
	}
	if t.size > 0 {
		return pad(data, t), nil
	}
	return appendOffsets(data, ends), nil
}

// appendOffsets writes framing offsets, as narrow as the whole container allows.
func appendOffsets(data []byte, ends []int) []byte {
	width := 1
	for width < 8 && offsetWidth(len(data)+len(ends)*width) > width {
		width *= 2
	}
	for _, end := range ends {
		data = append(data, binary.LittleEndian.AppendUint64(nil, uint64(end))[:width]...)
	}
	return data
}
