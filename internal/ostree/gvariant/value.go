package gvariant

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"strings"
	"unicode/utf8"
)

// Value is a serialized value in normal form.
type Value struct {
	typ  *typ
	data []byte
}

// Open checks that data is a value of the type in normal form. The returned Value refers to
// data.
func Open(text string, data []byte) (Value, error) {
	t, err := parseType(text)
	if err != nil {
		return Value{}, cannotRead(text, err)
	}
	return Type{t}.Open(data)
}

// Open does what the function Open does, for this type.
func (t Type) Open(data []byte) (Value, error) {
	if err := check(t.typ, data, 0); err != nil {
		return Value{}, cannotRead(t.typ.text, err)
	}
	return Value{t.typ, data}, nil
}

func cannotRead(text string, err error) error {
	return fmt.Errorf("cannot read GVariant of type %s: %w", text, err)
}

// Type returns the type string of the value.
func (v Value) Type() string { return v.typ.text }

// Bytes returns the serialized value. For an ay this is its content. The caller must not
// modify it.
func (v Value) Bytes() []byte { return v.data }

// Text returns the text of an s. For other types the result has no meaning.
func (v Value) Text() string { return string(bytes.TrimSuffix(v.data, []byte{0})) }

// Uint32 returns the number of a u. For other types the result has no meaning.
func (v Value) Uint32() uint32 { return uint32(v.number()) }

// Uint64 returns the number of a t. For other types the result has no meaning.
func (v Value) Uint64() uint64 { return v.number() }

func (v Value) number() uint64 {
	var wide [8]byte
	copy(wide[:], v.data)
	return binary.LittleEndian.Uint64(wide[:])
}

// Members iterates over a container's members in order: an array's elements, the fields of a tuple or dictionary entry,
// or the value in a variant or maybe. Other values, and the zero Value, have none.
func (v Value) Members() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		if v.typ == nil || v.typ.basic {
			return
		}
		for f := openFrame(v.typ, v.data); f.next(); {
			if !yield(Value{f.typ, f.value}) {
				return
			}
		}
	}
}

// Field returns the nth field of a tuple or dictionary entry, counted from 0, or the value in
// a variant (n is 0). The field must exist.
func (v Value) Field(n int) Value {
	f := openFrame(v.typ, v.data)
	for range n + 1 {
		f.next()
	}
	return Value{f.typ, f.value}
}

// check validates a value and its members.
func check(t *typ, data []byte, depth int) error {
	if depth > maxDepth {
		return errors.New("nested too deep")
	}
	if t.size > 0 && len(data) != t.size {
		return errNotNormal
	}
	if t.any {
		return nil
	}
	if t.basic {
		return checkBasic(t.kind, data)
	}
	f := openFrame(t, data)
	if t.kind == 'a' && t.members[0].any {
		return f.err
	}
	for f.next() {
		if err := check(f.typ, f.value, depth+1); err != nil {
			return err
		}
	}
	return f.err
}

// checkBasic validates a value of a basic type. If the type has a fixed size, data has it.
func checkBasic(kind byte, data []byte) error {
	switch kind {
	case 'b':
		if data[0] > 1 {
			return errNotNormal
		}
	case 's', 'o', 'g':
		n := len(data) - 1
		if n < 0 || bytes.IndexByte(data, 0) != n || !utf8.Valid(data) {
			return errNotNormal
		}
		if kind == 'o' && !isObjectPath(data[:n]) || kind == 'g' && !isSignature(string(data[:n])) {
			return errNotNormal
		}
	}
	return nil
}

// isObjectPath reports whether a text is a D-Bus object path: "/", or elements of letters,
// digits and underscores, each preceded by a slash.
func isObjectPath(path []byte) bool {
	if string(path) == "/" {
		return true
	}
	slash := true // the last character was a slash, so no other one may follow
	for i, c := range path {
		switch {
		case c == '/' && (i == 0 || !slash):
			slash = true
		case i > 0 && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'):
			slash = false
		default:
			return false
		}
	}
	return !slash
}

// isSignature reports whether a text is a D-Bus signature: a sequence of types other than
// maybe.
func isSignature(types string) bool {
	if len(types) > maxType || strings.Contains(types, "m") {
		return false
	}
	for rest := types; rest != ""; {
		var err error
		if _, rest, err = splitType(rest, 0); err != nil {
			return false
		}
	}
	return true
}
