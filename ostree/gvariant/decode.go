package gvariant

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// errNotNormal is any deviation from the normal form.
var errNotNormal = errors.New("not in normal form")

// Decode reads data as a value of the type.
func Decode(typ string, data []byte) (any, error) {
	if err := valid(typ); err != nil {
		return nil, fmt.Errorf("cannot decode GVariant: %w", err)
	}
	value, err := decode(typ, data, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot decode GVariant of type %s: %w", typ, err)
	}
	return value, nil
}

func decode(t string, data []byte, depth int) (any, error) {
	if depth > maxDepth {
		return nil, errors.New("nested too deep")
	}
	if size := fixedSize(t); size > 0 && len(data) != size {
		return nil, errNotNormal
	}
	switch t[0] {
	case 'y':
		return data[0], nil
	case 'b':
		if data[0] > 1 {
			return nil, errNotNormal
		}
		return data[0] == 1, nil
	case 'u':
		return binary.LittleEndian.Uint32(data), nil
	case 't':
		return binary.LittleEndian.Uint64(data), nil
	case 's':
		if n := len(data); n == 0 || bytes.IndexByte(data, 0) != n-1 {
			return nil, errNotNormal
		}
		return string(data[:len(data)-1]), nil
	case 'v':
		return decodeVariant(data, depth)
	case 'a':
		return decodeArray(t[1:], data, depth)
	}
	return decodeTuple(t, data, depth)
}

func decodeVariant(data []byte, depth int) (any, error) {
	i := bytes.LastIndexByte(data, 0)
	if i < 0 {
		return nil, errNotNormal
	}
	t := string(data[i+1:])
	if err := valid(t); err != nil {
		return nil, err
	}
	value, err := decode(t, data[:i], depth+1)
	return Variant{Type: t, Value: value}, err
}

func decodeArray(element string, data []byte, depth int) (any, error) {
	if element == "y" {
		return slices.Clone(data), nil
	}
	values := []any{}
	if len(data) == 0 {
		return values, nil
	}
	ends, body, err := arrayEnds(element, data)
	if err != nil {
		return nil, err
	}
	start := 0
	for _, end := range ends {
		value, next, err := decodeAt(element, data[:body], start, end, depth)
		if err != nil {
			return nil, err
		}
		values, start = append(values, value), next
	}
	if start != body {
		return nil, errNotNormal
	}
	return values, nil
}

// arrayEnds is where each element of a non-empty array ends, and where all do.
func arrayEnds(element string, data []byte) (ends []int, body int, err error) {
	if size := fixedSize(element); size > 0 {
		if len(data)%size != 0 {
			return nil, 0, errNotNormal
		}
		for end := size; end <= len(data); end += size {
			ends = append(ends, end)
		}
		return ends, len(data), nil
	}
	width := offsetWidth(len(data))
	if len(data) < width {
		return nil, 0, errNotNormal
	}
	body = int(readOffset(data[len(data)-width:]))
	if body < 0 || body > len(data)-width || (len(data)-body)%width != 0 {
		return nil, 0, errNotNormal
	}
	for at := body; at < len(data); at += width {
		ends = append(ends, int(readOffset(data[at:at+width])))
	}
	return ends, body, nil
}

// decodeAt decodes the member that follows start and ends at end.
func decodeAt(t string, data []byte, start, end, depth int) (value any, next int, err error) {
	aligned := align(start, alignment(t))
	if aligned > end || end > len(data) {
		return nil, 0, errNotNormal
	}
	if strings.Trim(string(data[start:aligned]), "\x00") != "" {
		return nil, 0, errNotNormal
	}
	value, err = decode(t, data[aligned:end], depth+1)
	return value, end, err
}

func decodeTuple(t string, data []byte, depth int) (any, error) {
	types := members(t)
	width, offsets := offsetWidth(len(data)), 0
	tuple := make(Tuple, 0, len(types))
	at := 0
	for i, m := range types {
		var end int
		switch size := fixedSize(m); {
		case size > 0:
			end = align(at, alignment(m)) + size
		case i == len(types)-1:
			end = len(data) - offsets*width
		default:
			offsets++
			pos := len(data) - offsets*width
			if pos < at {
				return nil, errNotNormal
			}
			end = int(readOffset(data[pos : pos+width]))
			if end < 0 || end > pos {
				return nil, errNotNormal
			}
		}
		value, next, err := decodeAt(m, data, at, end, depth)
		if err != nil {
			return nil, err
		}
		tuple, at = append(tuple, value), next
	}
	limit := len(data) - offsets*width
	if at > limit {
		return nil, errNotNormal
	}
	rest := data[at:limit]
	if fixedSize(t) == 0 && len(rest) > 0 || strings.Trim(string(rest), "\x00") != "" {
		return nil, errNotNormal
	}
	return tuple, nil
}

func readOffset(b []byte) uint64 {
	var wide [8]byte
	copy(wide[:], b)
	return binary.LittleEndian.Uint64(wide[:])
}
