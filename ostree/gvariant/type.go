// Package gvariant reads and writes the part of GLib's GVariant serialisation
// that ostree uses: little-endian, in normal form, with the types y b u t s v,
// arrays, tuples and dictionary entries. The format is described in GLib's
// "GVariant Specification"; values map to Go like this:
//
//	y byte    b bool    u uint32    t uint64    s string    ay []byte
//	v Variant    a… []any    (…) and {…} Tuple
//
// ostree stores some integers byte-swapped; that is its business, not done here.
//
// Input may be hostile: decoding never panics, allocates no more than a small
// multiple of the input, and accepts nothing but the normal form.
package gvariant

import "fmt"

// Tuple is the value of a tuple or dictionary entry.
type Tuple []any

// Variant is a value with its type.
type Variant struct {
	Type  string
	Value any
}

// maxDepth bounds how deep types may nest.
const maxDepth = 32

// split returns the first complete type of a type string and what follows it.
func split(types string, depth int) (first, rest string, err error) {
	if types == "" || depth > maxDepth {
		return "", "", fmt.Errorf("bad type string %q", types)
	}
	switch types[0] {
	case 'y', 'b', 'u', 't', 's', 'v':
		return types[:1], types[1:], nil
	case 'a':
		element, rest, err := split(types[1:], depth+1)
		return types[:1+len(element)], rest, err
	case '(', '{':
		end := map[byte]byte{'(': ')', '{': '}'}[types[0]]
		rest := types[1:]
		for rest != "" && rest[0] != end {
			if _, rest, err = split(rest, depth+1); err != nil {
				return "", "", err
			}
		}
		if rest == "" {
			return "", "", fmt.Errorf("bad type string %q", types)
		}
		n := len(types) - len(rest) + 1
		return types[:n], types[n:], nil
	}
	return "", "", fmt.Errorf("unknown type %q", types)
}

// valid checks that text is one complete type.
func valid(text string) error {
	_, rest, err := split(text, 0)
	if err == nil && rest != "" {
		err = fmt.Errorf("bad type string %q", text)
	}
	return err
}

// members are the types in a tuple or dictionary entry.
func members(tuple string) []string {
	var all []string
	for rest := tuple[1 : len(tuple)-1]; rest != ""; {
		first, after, err := split(rest, 0)
		if err != nil {
			return nil // cannot be: the type is valid
		}
		all, rest = append(all, first), after
	}
	return all
}

// alignment is that of a valid type, in bytes.
func alignment(t string) int {
	switch t[0] {
	case 'u':
		return 4
	case 't', 'v':
		return 8
	case 'a':
		return alignment(t[1:])
	case '(', '{':
		most := 1
		for _, m := range members(t) {
			most = max(most, alignment(m))
		}
		return most
	}
	return 1
}

// fixedSize is the size of a valid type whose values all have the same, or 0.
func fixedSize(t string) int {
	switch t[0] {
	case 'y', 'b':
		return 1
	case 'u':
		return 4
	case 't':
		return 8
	case '(', '{':
		size := 0
		for _, m := range members(t) {
			n := fixedSize(m)
			if n == 0 {
				return 0
			}
			size = align(size, alignment(m)) + n
		}
		// The unit type has size 1.
		return max(align(size, alignment(t)), 1)
	}
	return 0
}

// align rounds n up to a multiple of to.
func align(n, to int) int { return (n + to - 1) / to * to }

// offsetWidth is the size of one framing offset in a container of size bytes.
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
