package jsonpath

import (
	"bytes"
	"encoding/json"
)

// maxDuplicates bounds how many duplicates are named.
const maxDuplicates = 20

// Duplicates are the paths of members that an object has more than once: which
// of them counts differs between readers (RFC 8259, section 4). The data must be
// valid JSON.
func Duplicates(data []byte) []string {
	var found []string
	scan(data, func(s scopes, again bool, _ int64) bool {
		if again {
			found = append(found, s.path())
		}
		return len(found) < maxDuplicates
	})
	return found
}

// Lines fills in the lines, from 1, on which the paths end that are its keys;
// those that the data does not have keep their value. The data must be valid JSON.
func Lines(data []byte, lines map[string]int) {
	line, counted := 1, 0
	scan(data, func(s scopes, _ bool, offset int64) bool {
		line += bytes.Count(data[counted:offset], []byte("\n"))
		counted = int(offset)
		if old, wanted := lines[s.path()]; wanted && old == 0 {
			lines[s.path()] = line
		}
		return true
	})
}

// At is the path of what is read at an offset of valid JSON.
func At(data []byte, offset int64) string {
	path := "$"
	scan(data, func(s scopes, _ bool, at int64) bool {
		path = s.path()
		return at < offset
	})
	return path
}

// scan calls visit for each token until it says no: with where it stands, whether
// it is a member's name that the object had before, and where the token ends.
func scan(data []byte, visit func(s scopes, again bool, end int64) bool) {
	var s scopes
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	for {
		token, err := d.Token()
		if err != nil {
			return
		}
		again := s.read(token)
		if !visit(s, again, d.InputOffset()) {
			return
		}
	}
}

// scopes are the objects and arrays that are being read, the innermost last.
type scopes []scope

type scope struct {
	at    string          // its own path
	seen  map[string]bool // the members so far; nil for an array
	inKey bool            // the value of key comes next
	key   string
	index int // of the element that is being read, for an array
}

// read takes the next token. It reports whether that is a member's name that the
// object had before.
func (s *scopes) read(token json.Token) (again bool) {
	switch token {
	case json.Delim('}'), json.Delim(']'):
		*s = (*s)[:len(*s)-1]
		s.valueRead()
		return false
	}
	if len(*s) > 0 {
		in := &(*s)[len(*s)-1]
		if name, ok := token.(string); ok && in.seen != nil && !in.inKey {
			in.key, in.inKey = name, true
			again = in.seen[name]
			in.seen[name] = true
			return again
		}
		in.index++
	}
	switch token {
	case json.Delim('{'):
		*s = append(*s, scope{at: s.path(), seen: map[string]bool{}, index: -1})
	case json.Delim('['):
		*s = append(*s, scope{at: s.path(), index: -1})
	default:
		s.valueRead()
	}
	return false
}

// valueRead ends a member.
func (s *scopes) valueRead() {
	if len(*s) > 0 {
		(*s)[len(*s)-1].inKey = false
	}
}

// path is where the reading stands.
func (s scopes) path() string {
	if len(s) == 0 {
		return "$"
	}
	switch in := s[len(s)-1]; {
	case in.seen == nil && in.index >= 0:
		return in.at + Element(in.index)
	case in.seen != nil && (in.inKey || in.key != ""):
		return in.at + Member(in.key)
	default:
		return in.at
	}
}

// Depth is how deep the objects and arrays of valid JSON are nested.
func Depth(data []byte) int {
	depth, deepest, quoted := 0, 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}
