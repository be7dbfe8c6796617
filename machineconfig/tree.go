package machineconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"unicode/utf8"
)

// node is a JSON value that knows where it stands, so that problems can be named
// without stopping at the first.
type node struct {
	path   string
	value  any // nil, bool, string, json.Number, []any or map[string]any
	report *Report
}

// maxSize bounds a MachineConfig, in bytes; the API server takes 1.5 MiB.
const maxSize = 8 << 20

// parseTree reads one JSON value. On failure the report says why.
func parseTree(data []byte, report *Report) (node, bool) {
	root := node{path: "$", report: report}
	if len(data) > maxSize {
		report.fail("$", "it has %d bytes, more than %d", len(data), maxSize)
		return root, false
	}
	if !utf8.Valid(data) {
		report.fail("$", "it is not JSON: it holds bytes that are not UTF-8")
		return root, false
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	err := d.Decode(&root.value)
	if err == nil {
		if _, trailing := d.Token(); trailing != io.EOF {
			err = fmt.Errorf("something follows the JSON value")
		}
	}
	if err != nil {
		offset := d.InputOffset()
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			offset = syntax.Offset - 1 // it counts the byte that is wrong
		}
		line, column := position(data, offset)
		report.fail("$", "it is not JSON: line %d, column %d: %v", line, column, err)
		return root, false
	}
	for _, path := range duplicates(data) {
		report.fail(path, "it is there more than once")
	}
	return root, true
}

// position turns an offset into a line and a column, both from 1.
func position(data []byte, offset int64) (line, column int) {
	before := data[:max(0, min(int(offset), len(data)))]
	return bytes.Count(before, []byte("\n")) + 1, len(before) - bytes.LastIndexByte(before, '\n')
}

func (n node) fail(format string, args ...any) { n.report.fail(n.path, format, args...) }

// isNull reports whether the value is null or absent, which readers take alike.
func (n node) isNull() bool { return n.value == nil }

// get is a member of an object; absent and null are the same.
func (n node) get(key string) node {
	object, _ := n.value.(map[string]any)
	return node{path: n.path + member(key), value: object[key], report: n.report}
}

// keys are the members' names, in order.
func (n node) keys() []string {
	object, _ := n.value.(map[string]any)
	return slices.Sorted(maps.Keys(object))
}

// object reports whether the value is an object or null; if not, that is a problem.
func (n node) object() bool {
	_, ok := n.value.(map[string]any)
	if !ok && !n.isNull() {
		n.fail("it is %s, not an object", n.kind())
	}
	return ok
}

// text is the value as a string; null is "".
func (n node) text() string {
	s, ok := n.value.(string)
	if !ok && !n.isNull() {
		n.fail("it is %s, not a string", n.kind())
	}
	return s
}

// mustBe checks for the one string that may stand here, if any does.
func (n node) mustBe(want string) {
	if got, ok := n.value.(string); ok && got != want {
		n.fail("it is %s, not %q", quoted(got), want)
	} else if !ok && !n.isNull() {
		n.text() // says what it is instead
	}
}

// boolean is the value as a boolean; null is false.
func (n node) boolean() bool {
	b, ok := n.value.(bool)
	if !ok && !n.isNull() {
		n.fail("it is %s, not true or false", n.kind())
	}
	return b
}

// items are the elements of an array; null has none.
func (n node) items() []node {
	array, ok := n.value.([]any)
	if !ok && !n.isNull() {
		n.fail("it is %s, not an array", n.kind())
	}
	items := make([]node, len(array))
	for i, v := range array {
		items[i] = node{path: fmt.Sprintf("%s[%d]", n.path, i), value: v, report: n.report}
	}
	return items
}

// isEmpty reports whether the value says nothing: null, "", {}, [] or made of such.
func (n node) isEmpty() bool { return isEmpty(n.value) }

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
func (n node) kind() string {
	switch n.value.(type) {
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
