package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// maxValues limits the number of values in a JSON text: a value of two bytes becomes a node of
// about 160 bytes.
const maxValues = 1_000_000

// jsonReader builds a tree from a JSON text that is known to be valid. It is written by hand because the tokens of
// encoding/json take several times as long.
type jsonReader struct {
	text    []byte
	at      int // offset of the next byte
	line    int // line at offset counted
	counted int
	values  int
}

// jsonTree returns the tree of a valid JSON text that starts on the given line.
func jsonTree(text []byte, line int) (*yaml.Node, error) {
	r := &jsonReader{text: text, line: line}
	return r.value()
}

// value reads the next value.
func (r *jsonReader) value() (*yaml.Node, error) {
	if r.values++; r.values > maxValues {
		return nil, fmt.Errorf("it holds more than %d values", maxValues)
	}
	n := &yaml.Node{Kind: yaml.ScalarNode}
	switch c := r.next(); {
	case c == '{' || c == '[':
		n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		if c == '{' {
			n.Kind, n.Tag = yaml.MappingNode, "!!map"
		}
		r.at++
		n.Line = r.lineNow()
		return n, r.content(n)
	case c == '"':
		n.Tag, n.Value = tagString, r.quoted()
	case c == 't' || c == 'f':
		n.Tag, n.Value = tagBoolean, r.word()
	case c == 'n':
		n.Tag, n.Value = tagNull, r.word()
	default:
		n.Tag, n.Value = tagJSON, r.word()
	}
	n.Line = r.lineNow()
	return n, nil
}

// content reads the rest of an object or array.
func (r *jsonReader) content(n *yaml.Node) error {
	for c := r.next(); c != '}' && c != ']'; c = r.next() {
		value, err := r.value()
		if err != nil {
			return err
		}
		n.Content = append(n.Content, value)
	}
	r.at++
	return nil
}

// next returns the first byte of the next value, or the end of the object or array. What separates values says
// nothing in a valid text.
func (r *jsonReader) next() byte {
	for strings.IndexByte(" \t\r\n,:", r.text[r.at]) >= 0 {
		r.at++
	}
	return r.text[r.at]
}

// word reads a number, true, false or null.
func (r *jsonReader) word() string {
	start := r.at
	for r.at < len(r.text) && strings.IndexByte(" \t\r\n,:}]", r.text[r.at]) < 0 {
		r.at++
	}
	return string(r.text[start:r.at])
}

// quoted reads a string.
func (r *jsonReader) quoted() string {
	start, escaped := r.at, false
	for r.at++; r.text[r.at] != '"'; r.at++ {
		if r.text[r.at] == '\\' {
			escaped = true
			r.at++
		}
	}
	r.at++
	if !escaped {
		return string(r.text[start+1 : r.at-1])
	}
	var value string
	if err := json.Unmarshal(r.text[start:r.at], &value); err != nil {
		panic(err) // the text is valid
	}
	return value
}

// lineNow returns the line of the last byte that was read.
func (r *jsonReader) lineNow() int {
	r.line += bytes.Count(r.text[r.counted:r.at], []byte("\n"))
	r.counted = r.at
	return r.line
}

// appendJSON appends a value as JSON.
func appendJSON(b []byte, n *yaml.Node) []byte {
	switch kindOf(n) {
	case kindObject:
		b = append(b, '{')
		first := true
		for key, value := range members(n) {
			if !first {
				b = append(b, ',')
			}
			first = false
			b = append(appendString(b, key.Value), ':')
			b = appendJSON(b, value)
		}
		return append(b, '}')
	case kindArray:
		b = append(b, '[')
		for i, element := range resolved(n).Content {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendJSON(b, element)
		}
		return append(b, ']')
	case kindNumber:
		text, _ := numberText(resolved(n)) // numbers outside JSON's range were reported before
		return append(b, text...)
	case kindBoolean:
		return fmt.Append(b, isTrue(resolved(n)))
	case kindString:
		return appendString(b, resolved(n).Value)
	}
	return append(b, "null"...)
}

// textSize returns about how many bytes a tree takes as JSON.
func textSize(n *yaml.Node) int {
	if n == nil {
		return len("null")
	}
	size := len(n.Value) + len(`"",`)
	for _, c := range n.Content {
		size += textSize(c)
	}
	return size
}

// appendString appends a string as JSON, without HTML escapes.
func appendString(b []byte, text string) []byte {
	if isPlain(text) {
		return append(append(append(b, '"'), text...), '"')
	}
	var quoted bytes.Buffer
	e := json.NewEncoder(&quoted)
	e.SetEscapeHTML(false)
	if err := e.Encode(text); err != nil {
		panic(err) // strings always encode
	}
	return append(b, bytes.TrimSuffix(quoted.Bytes(), []byte("\n"))...)
}

// isPlain reports whether a string stands in JSON as it is. It errs only to the safe side: encoding/json escapes few of the others.
func isPlain(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// syntaxOffset returns the offset of a syntax error.
func syntaxOffset(data []byte, d *json.Decoder, err error) int64 {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return int64(len(bytes.TrimRight(data, " \t\r\n")))
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return syntax.Offset - 1 // Offset is behind the offending byte
	}
	return d.InputOffset()
}
