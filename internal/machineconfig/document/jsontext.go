package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// maxValues limits the number of values in a JSON text: a value of two bytes becomes a node of
// about 160 bytes.
const maxValues = 1_000_000

// jsonReader builds a tree from a JSON text that is known to be valid.
type jsonReader struct {
	text    []byte
	decoder *json.Decoder
	line    int // line at offset counted
	counted int64
	values  int
}

// jsonTree returns the tree of a valid JSON text that starts on the given line.
func jsonTree(text []byte, line int) (*yaml.Node, error) {
	r := &jsonReader{text: text, decoder: json.NewDecoder(bytes.NewReader(text)), line: line}
	r.decoder.UseNumber()
	return r.value()
}

// value reads the next value.
func (r *jsonReader) value() (*yaml.Node, error) {
	token, err := r.decoder.Token()
	if err != nil {
		return nil, err
	}
	if r.values++; r.values > maxValues {
		return nil, fmt.Errorf("it holds more than %d values", maxValues)
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: r.lineOf(r.decoder.InputOffset())}
	switch token := token.(type) {
	case json.Delim:
		n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		if token == '{' {
			n.Kind, n.Tag = yaml.MappingNode, "!!map"
		}
		return n, r.content(n)
	case string:
		n.Tag, n.Value = tagString, token
	case json.Number:
		n.Tag, n.Value = tagJSON, token.String()
	case bool:
		n.Tag, n.Value = tagBoolean, fmt.Sprint(token)
	default:
		n.Tag, n.Value = tagNull, "null"
	}
	return n, nil
}

// content reads the rest of an object or array.
func (r *jsonReader) content(n *yaml.Node) error {
	for r.decoder.More() {
		value, err := r.value()
		if err != nil {
			return err
		}
		n.Content = append(n.Content, value)
	}
	_, err := r.decoder.Token()
	return err
}

// lineOf returns the line of an offset. Offsets must not decrease between calls.
func (r *jsonReader) lineOf(offset int64) int {
	r.line += bytes.Count(r.text[r.counted:offset], []byte("\n"))
	r.counted = offset
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

// appendString appends a string as JSON, without HTML escapes.
func appendString(b []byte, text string) []byte {
	var quoted bytes.Buffer
	e := json.NewEncoder(&quoted)
	e.SetEscapeHTML(false)
	if err := e.Encode(text); err != nil {
		panic(err) // strings always encode
	}
	return append(b, bytes.TrimSuffix(quoted.Bytes(), []byte("\n"))...)
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
