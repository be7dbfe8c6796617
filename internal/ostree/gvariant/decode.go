package gvariant

import (
	"bytes"
	"fmt"
)

// maxDecoded is the maximum number of values that Decode creates. Each takes about 64 bytes.
const maxDecoded = 1 << 18

// Decode decodes data as a value of the type.
func Decode(text string, data []byte) (any, error) {
	v, err := Open(text, data)
	if err != nil {
		return nil, err
	}
	return v.Decode()
}

// Decode converts the value to Go. It returns an error if the package has no mapping
// for a type, or if there are more than 2¹⁸ values.
func (v Value) Decode() (any, error) {
	d := decoder{left: maxDecoded}
	value, err := d.decode(v)
	if err != nil {
		return nil, fmt.Errorf("cannot decode GVariant of type %s: %w", v.Type(), err)
	}
	return value, nil
}

// decoder decodes values; left is how many it may still create.
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

// members decodes the members of a container and appends them to a slice.
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
