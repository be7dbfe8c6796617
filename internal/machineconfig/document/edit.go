package document

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"machine-pivot/internal/problem"
)

// Edit reads one document, in JSON or YAML, and lets change check and modify it. It returns the
// modified text in its original form: the order, comments and style of everything else are
// kept, and without a modification the text is returned byte for byte. It returns nil if the
// report has an error.
func Edit(file string, data []byte, change func(root Node)) ([]byte, problem.Report) {
	var report problem.Report
	docs := documents(file, data, &report)
	switch {
	case len(docs) > 1:
		report.Fail("$", "it holds more than one document")
	case len(docs) == 0 && !report.Failed():
		report.Fail("$", "it is empty")
	}
	if len(docs) != 1 || report.Failed() {
		return nil, ordered(file, report)
	}
	e := newEditor(docs[0], data)
	e.checkAnchors(docs[0].root, &report)
	before := e.text(&report)
	report.Add(docs[0].decode(change)...)
	if !report.Failed() {
		data = e.changed(data, before, &report)
	}
	if report.Failed() {
		data = nil
	}
	return data, ordered(file, report)
}

// changed returns the text after a modification, or the original data if nothing was modified.
func (e editor) changed(data, before []byte, report *problem.Report) []byte {
	after := e.text(report)
	if bytes.Equal(before, after) {
		return data
	}
	if !e.isJSON {
		e.checkText(after, report)
	}
	return after
}

// checkText reports an error if YAML does not decode to the values of the document. The YAML
// library writes some values wrongly: an implicit null, as in {a}, becomes an empty string.
func (e editor) checkText(text []byte, report *problem.Report) {
	var problems problem.Report
	again := documents("", text, &problems)
	if problems.Failed() || len(again) != 1 || !bytes.Equal(appendJSON(nil, again[0].root), appendJSON(nil, e.root)) {
		report.Add(problem.Errorf("$", "it cannot be written back in the form that it has").WithHint("write it as JSON, or with null spelled out"))
	}
}

// editor encodes a document in the form in which it was read.
type editor struct {
	document
	indent  bool // JSON on several lines
	compact bool // YAML with lists that are not indented
	newline bool // at the end of the text
}

func newEditor(d document, data []byte) editor {
	return editor{
		document: d,
		indent:   bytes.Contains(bytes.TrimSpace(data), []byte("\n")),
		compact:  compactLists(resolved(d.root)),
		newline:  bytes.HasSuffix(data, []byte("\n")),
	}
}

// checkAnchors rejects anchors and aliases, because an edit could separate them.
func (e editor) checkAnchors(n *yaml.Node, report *problem.Report) {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		p := atLine(n.Line, "YAML anchors and aliases are not supported").WithHint("write the values in place of *NAME")
		report.Add(p)
		return
	}
	for _, c := range n.Content {
		e.checkAnchors(c, report)
	}
}

// compactLists reports whether the first list below n starts in the same column as its key.
func compactLists(n *yaml.Node) bool {
	for i := 0; i+1 < len(n.Content) && n.Kind == yaml.MappingNode; i += 2 {
		if v := n.Content[i+1]; v.Kind == yaml.SequenceNode && v.Style&yaml.FlowStyle == 0 && len(v.Content) > 0 {
			return v.Column == n.Content[i].Column
		} else if v.Kind == yaml.MappingNode && compactLists(v) {
			return true
		}
	}
	return false
}

// text encodes the document.
func (e editor) text(report *problem.Report) []byte {
	if e.isJSON {
		return e.json()
	}
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if e.compact {
		encoder.CompactSeqIndent()
	}
	if err := encoder.Encode(e.root); err != nil {
		report.Fail("$", "it cannot be written as YAML: %v", err)
	}
	return b.Bytes()
}

func (e editor) json() []byte {
	text := appendJSON(nil, e.root)
	if e.indent {
		var indented bytes.Buffer
		if err := json.Indent(&indented, text, "", "  "); err != nil {
			panic(err) // appendJSON writes valid JSON
		}
		text = indented.Bytes()
	}
	if e.newline {
		text = append(text, '\n')
	}
	return text
}

// SetText sets a member of an object to a string.
func (n Node) SetText(key, text string) { n.set(key, scalar(tagString, text)) }

// SetNumber sets a member of an object to a number.
func (n Node) SetNumber(key string, number int64) { n.set(key, scalar(tagInteger, fmt.Sprint(number))) }

// Ensure returns a member that is an object. It creates or replaces the member if it is not an
// object.
func (n Node) Ensure(key string) Node {
	member := n.Get(key)
	if kindOf(member.tree) != kindObject {
		member.tree = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		n.set(key, member.tree)
	}
	return member
}

// Append adds an object to a member that is a list, or is made one if it is null. The object has one member, a text that
// YAML shows as a block. It returns false if the member is something else.
func (n Node) Append(key, member, text string) bool {
	list := n.Get(key)
	switch kindOf(list.tree) {
	case kindArray:
	case kindNull:
		list.tree = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		n.set(key, list.tree)
	default:
		return false
	}
	block := scalar(tagString, text)
	block.Style = yaml.LiteralStyle
	at := resolved(list.tree)
	at.Content = append(at.Content, &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: []*yaml.Node{scalar(tagString, member), block}})
	return true
}

// RemoveMembers removes the members of an object for which drop returns true.
func (n Node) RemoveMembers(drop func(key string) bool) {
	if kindOf(n.tree) != kindObject {
		return
	}
	object := resolved(n.tree)
	var kept []*yaml.Node
	for pair := range slices.Chunk(object.Content, 2) {
		if !drop(pair[0].Value) {
			kept = append(kept, pair...)
		}
	}
	object.Content = kept
}

// set replaces a member of an object, or appends it.
func (n Node) set(key string, value *yaml.Node) {
	object := resolved(n.tree)
	for i := 0; i+1 < len(object.Content); i += 2 {
		if object.Content[i].Value == key {
			object.Content[i+1] = value
			return
		}
	}
	object.Content = append(object.Content, scalar(tagString, key), value)
}

func scalar(tag, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
}
