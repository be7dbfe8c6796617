package legacy

import (
	"bytes"
	"encoding/json"

	"machine-pivot/internal/machineconfig/document"
)

// pathAt returns the path of the value at an offset of valid JSON.
func pathAt(data []byte, offset int64) string {
	path := "$"
	var s scopes
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	for d.InputOffset() < offset {
		token, err := d.Token()
		if err != nil {
			break
		}
		s.read(token)
		path = s.path()
	}
	return path
}

// scopes are the enclosing objects and arrays, innermost last.
type scopes []scope

type scope struct {
	at       string // path of the object or array
	isObject bool
	inKey    bool // the value of key comes next
	key      string
	index    int // of the current element, in an array
}

// read processes the next token.
func (s *scopes) read(token json.Token) {
	switch token {
	case json.Delim('}'), json.Delim(']'):
		*s = (*s)[:len(*s)-1]
		s.valueRead()
		return
	}
	if len(*s) > 0 {
		in := &(*s)[len(*s)-1]
		if name, ok := token.(string); ok && in.isObject && !in.inKey {
			in.key, in.inKey = name, true
			return
		}
		in.index++
	}
	switch token {
	case json.Delim('{'), json.Delim('['):
		*s = append(*s, scope{at: s.path(), isObject: token == json.Delim('{'), index: -1})
	default:
		s.valueRead()
	}
}

// valueRead marks the current member's value as read.
func (s *scopes) valueRead() {
	if len(*s) > 0 {
		(*s)[len(*s)-1].inKey = false
	}
}

// path returns the current path.
func (s scopes) path() string {
	if len(s) == 0 {
		return "$"
	}
	switch in := s[len(s)-1]; {
	case !in.isObject && in.index >= 0:
		return in.at + document.Element(in.index)
	case in.isObject && (in.inKey || in.key != ""):
		return in.at + document.Member(in.key)
	default:
		return in.at
	}
}
