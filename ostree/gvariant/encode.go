package gvariant

import (
	"encoding/binary"
	"fmt"
)

// Encode writes a value of the type in normal form. The value must be made of
// the Go types that Decode returns.
func Encode(typ string, value any) (data []byte, err error) {
	if err := valid(typ); err != nil {
		return nil, fmt.Errorf("cannot encode GVariant: %w", err)
	}
	data, err = encode(typ, value)
	if err != nil {
		return nil, fmt.Errorf("cannot encode GVariant of type %s: %w", typ, err)
	}
	return data, nil
}

func encode(t string, value any) ([]byte, error) {
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
	case []any:
		if t[0] != 'a' {
			return nil, mismatch(t, value)
		}
		return encodeArray(t[1:], v)
	case Tuple:
		if (t[0] != '(' && t[0] != '{') || len(members(t)) != len(v) {
			return nil, mismatch(t, value)
		}
		return encodeTuple(t, v)
	}
	return nil, mismatch(t, value)
}

// expect fails unless a value's type is the one that is wanted of it.
func expect(t, is string, value any) error {
	if t == is {
		return nil
	}
	return mismatch(t, value)
}

func mismatch(t string, value any) error { return fmt.Errorf("%T is not a %s", value, t) }

// pad appends zeroes up to the alignment of a type.
func pad(data []byte, t string) []byte {
	return append(data, make([]byte, align(len(data), alignment(t))-len(data))...)
}

func encodeArray(element string, values []any) ([]byte, error) {
	var data []byte
	var ends []int
	for _, v := range values {
		inner, err := encode(element, v)
		if err != nil {
			return nil, err
		}
		data = append(pad(data, element), inner...)
		ends = append(ends, len(data))
	}
	if fixedSize(element) > 0 {
		return data, nil
	}
	return appendOffsets(data, ends), nil
}

func encodeTuple(t string, values Tuple) ([]byte, error) {
	types := members(t)
	var data []byte
	var ends []int
	for i, m := range types {
		inner, err := encode(m, values[i])
		if err != nil {
			return nil, err
		}
		data = append(pad(data, m), inner...)
		if fixedSize(m) == 0 && i < len(types)-1 {
			ends = append([]int{len(data)}, ends...)
		}
	}
	if fixedSize(t) > 0 {
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
