package machineconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// maxDuplicates bounds how many duplicates are named.
const maxDuplicates = 20

// duplicates are the paths of members that an object has more than once: which
// of them counts differs between readers (RFC 8259, section 4). The data must be
// valid JSON.
func duplicates(data []byte) []string {
	var found []string
	var s scopes
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	for len(found) < maxDuplicates {
		token, err := d.Token()
		if err != nil {
			break
		}
		if s.read(token) {
			found = append(found, s.path())
		}
	}
	return found
}

// scopes are the objects and arrays that are being read, the innermost last.
type scopes []scope

type scope struct {
	seen  map[string]bool // the members so far; nil for an array
	inKey bool            // the value of key comes next
	key   string
	index int // of the element that comes next, for an array
}

// read takes the next token. It reports whether that is a member's name that the
// object had before.
func (s *scopes) read(token json.Token) (again bool) {
	switch token {
	case json.Delim('{'):
		*s = append(*s, scope{seen: map[string]bool{}})
		return false
	case json.Delim('['):
		*s = append(*s, scope{})
		return false
	case json.Delim('}'), json.Delim(']'):
		*s = (*s)[:len(*s)-1]
	}
	if len(*s) == 0 {
		return false
	}
	in := &(*s)[len(*s)-1]
	if name, ok := token.(string); ok && in.seen != nil && !in.inKey {
		in.key, in.inKey = name, true
		again = in.seen[name]
		in.seen[name] = true
		return again
	}
	in.inKey = false
	in.index++
	return false
}

// path is where the reading stands.
func (s scopes) path() string {
	var b strings.Builder
	b.WriteByte('$')
	for _, in := range s {
		if in.seen == nil {
			fmt.Fprintf(&b, "[%d]", in.index)
		} else {
			b.WriteString(member(in.key))
		}
	}
	return b.String()
}

// plain is a member's name that a JSON path can hold as it is.
var plain = regexp.MustCompile(`^[A-Za-z_][-A-Za-z0-9_]*$`)

// member is a step of a JSON path: .name, or ["name"] for an unusual one.
func member(name string) string {
	if plain.MatchString(name) {
		return "." + name
	}
	return "[" + strconv.Quote(name) + "]"
}
