package document

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"machine-pivot/internal/problem"
)

// Edit reads a text of one document, in JSON or YAML, and lets change judge it and change
// it. The result is the text with the changes, in the form that it has: order, comments
// and style stay where nothing changes, and a text in which nothing does is the same to
// the byte. There is no result if the report has an error.
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
	report.Add(docs[0].judge(change)...)
	if !report.Failed() {
		data = e.changed(data, before, &report)
	}
	if report.Failed() {
		data = nil
	}
	return data, ordered(file, report)
}

// changed is the text after a change: the one that was read, if that wrote the same before.
func (e editor) changed(data, before []byte, report *problem.Report) []byte {
	after := e.text(report)
	if bytes.Equal(before, after) {
		return data
	}
	e.checkText(after, report)
	return after
}

// checkText reports a text that does not hold the values of the document. The YAML library
// writes some wrongly: of a null without a word, as in {a}, it makes an empty string.
func (e editor) checkText(text []byte, report *problem.Report) {
	var problems problem.Report
	again := documents("", text, &problems)
	if problems.Failed() || len(again) != 1 || !bytes.Equal(appendJSON(nil, again[0].root), appendJSON(nil, e.root)) {
		report.Add(problem.Errorf("$", "it cannot be written back in the form that it has").WithHint("write it as JSON, or with null spelled out"))
	}
}

// editor writes a document back in the form that it was read in.
type editor struct {
	document
	indent  bool // JSON of several lines
	compact bool // YAML whose lists are not indented
	newline bool // at the end
}

func newEditor(d document, data []byte) editor {
	return editor{
		document: d,
		indent:   bytes.Contains(bytes.TrimSpace(data), []byte("\n")),
		compact:  compactLists(resolved(d.root)),
		newline:  bytes.HasSuffix(data, []byte("\n")),
	}
}

// checkAnchors refuses what a change could tear apart.
func (e editor) checkAnchors(n *yaml.Node, report *problem.Report) {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		p := atLine(n.Line, "YAML anchors and aliases are not supported").WithHint("write the values out")
		report.Add(p)
		return
	}
	for _, c := range n.Content {
		e.checkAnchors(c, report)
	}
}

// compactLists reports whether the first list below n begins where its name does.
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

// text is the document as a text.
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
			panic(err) // it was made as JSON
		}
		text = indented.Bytes()
	}
	if e.newline {
		text = append(text, '\n')
	}
	return text
}

// SetText makes a string the member of an object.
func (n Node) SetText(key, text string) { n.set(key, scalar(tagString, text)) }

// SetNumber makes a number the member of an object.
func (n Node) SetNumber(key string, number int64) { n.set(key, scalar(tagInteger, fmt.Sprint(number))) }

// Ensure is the object that is a member of an object, made if there is none.
func (n Node) Ensure(key string) Node {
	member := n.Get(key)
	if kindOf(member.tree) != kindObject {
		member.tree = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		n.set(key, member.tree)
	}
	return member
}

// RemoveMembers takes those members of an object away that drop names.
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

// set replaces the member of an object, or appends it.
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
