package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"unicode/utf8"

	"machine-pivot/internal/machineconfig/jsonpath"
	"machine-pivot/internal/problem"
)

// Node is a JSON value that knows where it stands, so that problems can be named
// without stopping at the first.
type Node struct {
	Path   string
	Value  any // nil, bool, string, json.Number, []any or map[string]any
	Report *problem.Report
}

// MaxSize bounds a text, in bytes; the API server of a cluster takes objects of 1.5 MiB.
const MaxSize = 8 << 20

// ParseJSON reads one JSON value. On failure the report says why.
func ParseJSON(data []byte, report *problem.Report) (Node, bool) {
	root := Node{Path: "$", Report: report}
	if len(data) > MaxSize {
		report.Fail("$", "it has %d bytes, more than %d", len(data), MaxSize)
		return root, false
	}
	if !utf8.Valid(data) {
		report.Fail("$", "it is not JSON: it holds bytes that are not UTF-8")
		return root, false
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	err := d.Decode(&root.Value)
	if err == nil {
		if _, trailing := d.Token(); trailing != io.EOF {
			err = fmt.Errorf("something follows the JSON value")
		}
	}
	if err != nil {
		report.Add(notJSON(data, d, err))
		return root, false
	}
	if jsonpath.Depth(data) > maxDepth {
		report.Fail("$", "it is nested too deeply")
		return root, false
	}
	for _, path := range jsonpath.Duplicates(data) {
		report.Fail(path, "it is there more than once")
	}
	return root, true
}

// notJSON is the problem of a text that a decoder does not take.
func notJSON(data []byte, d *json.Decoder, err error) problem.Problem {
	p := problem.Errorf("$", "it is not JSON: %v", err)
	p.Line, p.Column = position(data, syntaxOffset(data, d, err))
	return p
}

// syntaxOffset is where the decoder found what is wrong.
func syntaxOffset(data []byte, d *json.Decoder, err error) int64 {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return int64(len(bytes.TrimRight(data, " \t\r\n")))
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return syntax.Offset - 1 // it counts the byte that is wrong
	}
	return d.InputOffset()
}

// position turns an offset into a line and a column, both from 1.
func position(data []byte, offset int64) (line, column int) {
	before := data[:max(0, min(int(offset), len(data)))]
	return bytes.Count(before, []byte("\n")) + 1, len(before) - bytes.LastIndexByte(before, '\n')
}

// Fail reports an error of the value.
func (n Node) Fail(format string, args ...any) { n.Report.Fail(n.Path, format, args...) }

// Warn reports a warning about the value.
func (n Node) Warn(format string, args ...any) { n.Report.Warn(n.Path, format, args...) }

// At is a place below the value that may not be there, to report a problem of.
func (n Node) At(steps string) Node { return Node{Path: n.Path + steps, Report: n.Report} }

// IsNull reports whether the value is null or absent, which readers take alike.
func (n Node) IsNull() bool { return n.Value == nil }

// Get is a member of an object; absent and null are the same.
func (n Node) Get(key string) Node {
	object, _ := n.Value.(map[string]any)
	return Node{Path: n.Path + jsonpath.Member(key), Value: object[key], Report: n.Report}
}

// Keys are the members' names, in order.
func (n Node) Keys() []string {
	object, _ := n.Value.(map[string]any)
	return slices.Sorted(maps.Keys(object))
}

// Object reports whether the value is an object or null; if not, that is a problem.
func (n Node) Object() bool {
	_, ok := n.Value.(map[string]any)
	if !ok && !n.IsNull() {
		n.Fail("it is %s, not an object", n.kind())
	}
	return ok
}

// Text is the value as a string; null is "".
func (n Node) Text() string {
	s, ok := n.Value.(string)
	if !ok && !n.IsNull() {
		n.Fail("it is %s, not a string", n.kind())
	}
	return s
}

// MustBe checks for the one string that may stand here, if any does.
func (n Node) MustBe(want string) {
	if got, ok := n.Value.(string); ok && got != want {
		n.Fail("it is %s, not %q", problem.Quoted(got), want)
	} else if !ok && !n.IsNull() {
		n.Text() // says what it is instead
	}
}

// Boolean is the value as a boolean; null is false.
func (n Node) Boolean() bool {
	b, ok := n.Value.(bool)
	if !ok && !n.IsNull() {
		n.Fail("it is %s, not true or false", n.kind())
	}
	return b
}

// Items are the elements of an array; null has none.
func (n Node) Items() []Node {
	array, ok := n.Value.([]any)
	if !ok && !n.IsNull() {
		n.Fail("it is %s, not an array", n.kind())
	}
	items := make([]Node, len(array))
	for i, v := range array {
		items[i] = Node{Path: n.Path + jsonpath.Element(i), Value: v, Report: n.Report}
	}
	return items
}

// Texts is an object of strings; null has none.
func (n Node) Texts() map[string]string {
	n.Object()
	var texts map[string]string
	for _, key := range n.Keys() {
		if texts == nil {
			texts = map[string]string{}
		}
		texts[key] = n.Get(key).Text()
	}
	return texts
}

// Known refuses members of an object that have other names; of says what the
// object is one of.
func (n Node) Known(of string, names ...string) {
	n.Object()
	for _, key := range n.Keys() {
		if !slices.Contains(names, key) {
			n.Get(key).Fail("unknown member; %s has no such", of)
		}
	}
}

// IsEmpty reports whether the value says nothing: null, "", {}, [] or made of such.
func (n Node) IsEmpty() bool { return isEmpty(n.Value) }

func isEmpty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		for _, member := range v {
			if !isEmpty(member) {
				return false
			}
		}
		return true
	}
	return false
}

// kind names the JSON type of the value.
func (n Node) kind() string {
	switch n.Value.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case json.Number:
		return "a number"
	case []any:
		return "an array"
	}
	return "an object"
}
