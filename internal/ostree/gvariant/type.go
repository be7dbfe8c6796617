// Package gvariant reads and writes GLib's GVariant serialization as ostree uses
// it: little-endian and in normal form. The format is described in GLib's "GVariant
// Specification".
//
// Open validates a value of any type without decoding it; its members are read in place.
// Decode and Encode map the types used by ostree to Go, and no others:
//
//	y byte    b bool    u uint32    t uint64    s string    ay []byte
//	v Variant    a… []any    (…) and {…} Tuple
//
// ostree stores some integers byte-swapped; this package does not swap them back.
//
// Input may be malicious: no function panics on it, and only the normal form is accepted.
// Open takes time proportional to the size of the input and hardly any memory. A decoded
// value takes about twelve times the memory of its input, so Decode limits the number of
// values.
package gvariant

import (
	"fmt"
	"strings"
)

// Tuple is the value of a tuple or dictionary entry.
type Tuple []any

// Variant is a value with its type.
type Variant struct {
	Type  string
	Value any
}

// Limits. GLib's maximum depth is 128; ostree's structures and the metadata that
// rpm-ostree adds to commits stay below 10.
const (
	maxDepth = 32   // nesting of types and of values
	maxType  = 1024 // length of a type string in bytes
)

// typ is a parsed type.
type typ struct {
	text    string
	kind    byte // its first letter
	align   int  // alignment of a value, in bytes
	size    int  // size of a value, in bytes; 0 if it varies
	basic   bool // not a container
	any     bool // any data of that size is a valid value
	members []*typ
	offsets int // number of framing offsets in a tuple
}

// Type is a parsed type. It saves parsing the type string for every value, and is immutable.
type Type struct{ typ *typ }

// MustType parses a type string that is known to be valid, such as a constant. It panics if the
// string is not valid.
func MustType(text string) Type {
	t, err := parseType(text)
	if err != nil {
		panic(err)
	}
	return Type{t}
}

// parseType parses a text that must be exactly one complete type.
func parseType(text string) (*typ, error) {
	if len(text) > maxType {
		return nil, fmt.Errorf("a type string has %d bytes, more than %d", len(text), maxType)
	}
	t, rest, err := splitType(text, 0)
	if err == nil && rest != "" {
		err = badType(text)
	}
	return t, err
}

func badType(text string) error { return fmt.Errorf("bad type string %q", text) }

// basicTypes are the types that are not containers.
const basicTypes = "ybnqiuhxtdsog"

// basicSize returns the size of a basic type's values, or 0 if it varies. A fixed size is also
// the alignment.
func basicSize(kind byte) int {
	switch kind {
	case 'y', 'b':
		return 1
	case 'n', 'q':
		return 2
	case 'i', 'u', 'h':
		return 4
	case 'x', 't', 'd':
		return 8
	}
	return 0
}

// splitType parses the first complete type of a text; rest is the remaining text.
func splitType(text string, depth int) (t *typ, rest string, err error) {
	if text == "" || depth > maxDepth {
		return nil, "", badType(text)
	}
	t = &typ{kind: text[0], align: 1}
	rest = text[1:]
	switch {
	case strings.IndexByte(basicTypes, t.kind) >= 0:
		t.basic, t.size = true, basicSize(t.kind)
		t.align, t.any = max(t.size, 1), t.size > 0 && t.kind != 'b'
	case t.kind == 'v':
		t.align = 8
	case t.kind == 'a', t.kind == 'm':
		var element *typ
		if element, rest, err = splitType(rest, depth+1); err != nil {
			return nil, "", err
		}
		t.members, t.align = []*typ{element}, element.align
	case t.kind == '(', t.kind == '{':
		if rest, err = t.parseMembers(rest, depth); err != nil {
			return nil, "", err
		}
	default:
		return nil, "", fmt.Errorf("unknown type %q", text)
	}
	t.text = text[:len(text)-len(rest)]
	return t, rest, nil
}

// parseMembers parses the members of a tuple or dictionary entry and the closing bracket.
func (t *typ) parseMembers(rest string, depth int) (string, error) {
	end := map[byte]byte{'(': ')', '{': '}'}[t.kind]
	for rest != "" && rest[0] != end {
		m, after, err := splitType(rest, depth+1)
		if err != nil {
			return "", err
		}
		t.members, rest = append(t.members, m), after
		t.align = max(t.align, m.align)
	}
	entry := t.kind == '{'
	if rest == "" || entry && (len(t.members) != 2 || strings.IndexByte(basicTypes, t.members[0].kind) < 0) {
		return "", badType(string(t.kind) + rest)
	}
	t.layOut()
	return rest[1:], nil
}

// layOut computes the size of a tuple's values and the number of framing offsets: one for each
// member of varying size, except the last member.
func (t *typ) layOut() {
	fixed, size, sum := true, 0, 0
	t.any = len(t.members) > 0
	for i, m := range t.members {
		size, sum = align(size, m.align)+m.size, sum+m.size
		t.any = t.any && m.any
		if m.size == 0 {
			fixed = false
			if i < len(t.members)-1 {
				t.offsets++
			}
		}
	}
	if fixed {
		t.size = max(align(size, t.align), 1) // the empty tuple has size 1
	}
	t.any = t.any && t.size == sum // without padding
}

// align rounds n up to a multiple of to.
func align(n, to int) int { return (n + to - 1) / to * to }

// offsetWidth returns the size of a framing offset in a container of size bytes.
func offsetWidth(size int) int {
	switch {
	case size <= 0xff:
		return 1
	case size <= 0xffff:
		return 2
	case uint64(size) <= 0xffffffff:
		return 4
	}
	return 8
}
