package gvariant

import (
	"bytes"
	"fmt"
)

// maxDecoded bounds how many values Decode makes; each takes some 64 bytes.
const maxDecoded = 1 << 18

// Decode reads data as a value of the type.
func Decode(text string, data []byte) (any, error) {
	v, err := Open(text, data)
	if err != nil {
		return nil, err
	}
	return v.Decode()
}

// Decode maps the value to Go. A type that the package has no mapping for is an
// error, and so are more than 2¹⁸ values.
func (v Value) Decode() (any, error) {
	d := decoder{left: maxDecoded}
	value, err := d.decode(v)
	if err != nil {
		return nil, fmt.Errorf("cannot decode GVariant of type %s: %w", v.Type(), err)
	}
	return value, nil
}

// decoder counts the values that it may still make.
type decoder struct{ left int }

func (d *decoder) decode(v Value) (any, error) {
	if d.left--; d.left < 0 {
		return nil, fmt.Errorf("it has more than %d values", maxDecoded)
	}
	switch v.typ.kind {
	case 'y':
		return v.data[0], nil
	case 'b':
		return v.data[0] == 1, nil
	case 'u':
		return v.Uint32(), nil
	case 't':
		return v.Uint64(), nil
	case 's':
		return v.Text(), nil
	case 'v':
		inner := v.Field(0)
		value, err := d.decode(inner)
		return Variant{Type: inner.Type(), Value: value}, err
	case 'a':
		if v.typ.members[0].kind == 'y' {
			return bytes.Clone(v.data), nil
		}
		return d.members(v, []any{})
	case '(', '{':
		values, err := d.members(v, nil)
		return Tuple(values), err
	}
	return nil, fmt.Errorf("the type %s has no mapping to Go", v.Type())
}

// members decodes those of a container and appends them.
func (d *decoder) members(v Value, to []any) ([]any, error) {
	for m := range v.Members() {
		value, err := d.decode(m)
		if err != nil {
			return nil, err
		}
		to = append(to, value)
	}
	return to, nil
}
