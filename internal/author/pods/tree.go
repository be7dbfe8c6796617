package pods

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxSize bounds a manifest, in bytes: it would not fit into a cluster either.
const maxSize = 3 << 20

// maxDepth bounds how deeply a manifest may be nested.
const maxDepth = 200

// document is a manifest that can be changed and written back in the form that
// it was read in: order, comments and style stay where nothing changes.
type document struct {
	root    *yaml.Node
	isJSON  bool
	indent  bool // JSON of several lines
	compact bool // YAML whose lists are not indented
	newline bool // at the end
}

// parse reads a manifest of one document.
func parse(data []byte) (*document, error) {
	if len(data) > maxSize {
		return nil, fmt.Errorf("it has more than %d bytes", maxSize)
	}
	trimmed := bytes.TrimSpace(data)
	d := &document{isJSON: bytes.HasPrefix(trimmed, []byte("{")), indent: bytes.Contains(trimmed, []byte("\n")), newline: bytes.HasSuffix(data, []byte("\n"))}
	var err error
	if d.isJSON {
		d.root, err = parseJSON(data)
	} else {
		d.root, err = parseYAML(data)
	}
	if err != nil {
		return nil, err
	}
	if d.root.Kind != yaml.MappingNode {
		return nil, errors.New("it is not an object")
	}
	d.compact = compactLists(d.root)
	return d, nil
}

func parseYAML(data []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var root, more yaml.Node
	if err := decoder.Decode(&root); err != nil {
		return nil, fmt.Errorf("it is not YAML: %w", err)
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("it holds more than one document, of which kubelet reads one")
	}
	if err := plain(&root, 0); err != nil {
		return nil, err
	}
	var any any
	if err := root.Decode(&any); err != nil { // finds keys that are there twice
		return nil, fmt.Errorf("it is not YAML: %w", err)
	}
	return root.Content[0], nil
}

// plain refuses what a change could tear apart, or what grows when it is read.
func plain(n *yaml.Node, depth int) error {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		return fmt.Errorf("line %d: YAML anchors and aliases are not supported: write the values out", n.Line)
	}
	if depth > maxDepth {
		return errors.New("it is nested too deeply")
	}
	for _, c := range n.Content {
		if err := plain(c, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// parseJSON reads JSON with the order of its members.
func parseJSON(data []byte) (*yaml.Node, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	root, err := jsonValue(decoder, 0)
	if err == nil {
		if _, more := decoder.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something follows the object")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("it is not JSON: %w", err)
	}
	return root, nil
}

func jsonValue(decoder *json.Decoder, depth int) (*yaml.Node, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	if depth > maxDepth {
		return nil, errors.New("it is nested too deeply")
	}
	switch token := token.(type) {
	case json.Delim:
		return jsonList(decoder, token, depth)
	case string:
		return text(token), nil
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!float", Value: token.String()}, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(token)}, nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
}

// jsonList reads the rest of an object or array.
func jsonList(decoder *json.Decoder, open json.Delim, depth int) (*yaml.Node, error) {
	list := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	if open == '{' {
		list = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	}
	names := map[string]bool{}
	for decoder.More() {
		value, err := jsonValue(decoder, depth+1)
		if err != nil {
			return nil, err
		}
		if isName := open == '{' && len(list.Content)%2 == 0; isName {
			if names[value.Value] {
				return nil, fmt.Errorf("the member %q is there more than once", value.Value)
			}
			names[value.Value] = true
		}
		list.Content = append(list.Content, value)
	}
	_, err := decoder.Token()
	return list, err
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

// bytes writes the manifest back.
func (d *document) bytes() ([]byte, error) {
	var b bytes.Buffer
	if !d.isJSON {
		e := yaml.NewEncoder(&b)
		e.SetIndent(2)
		if d.compact {
			e.CompactSeqIndent()
		}
		err := errors.Join(e.Encode(d.root), e.Close())
		return b.Bytes(), err
	}
	if err := writeJSON(&b, d.root); err != nil {
		return nil, err
	}
	out := b.Bytes()
	if d.indent {
		var indented bytes.Buffer
		if err := json.Indent(&indented, out, "", "  "); err != nil {
			return nil, err
		}
		out = indented.Bytes()
	}
	if d.newline {
		out = append(out, '\n')
	}
	return out, nil
}

func writeJSON(b *bytes.Buffer, n *yaml.Node) error {
	switch n.Kind {
	case yaml.MappingNode, yaml.SequenceNode:
		brackets := map[yaml.Kind]string{yaml.MappingNode: "{}", yaml.SequenceNode: "[]"}[n.Kind]
		b.WriteByte(brackets[0])
		for i, c := range n.Content {
			switch {
			case i > 0 && n.Kind == yaml.MappingNode && i%2 == 1:
				b.WriteByte(':')
			case i > 0:
				b.WriteByte(',')
			}
			if err := writeJSON(b, c); err != nil {
				return err
			}
		}
		b.WriteByte(brackets[1])
		return nil
	}
	if n.Tag != "!!str" {
		b.WriteString(n.Value) // as it was read
		return nil
	}
	var quoted strings.Builder
	e := json.NewEncoder(&quoted)
	e.SetEscapeHTML(false)
	err := e.Encode(n.Value)
	b.WriteString(strings.TrimSuffix(quoted.String(), "\n"))
	return err
}

func text(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s} }

func number(n int64) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: fmt.Sprint(n)}
}

// object is a node that should be an object; nil stands for an absent one.
type object struct{ *yaml.Node }

// get is the member of a name, or nil.
func (o object) get(name string) *yaml.Node {
	if o.Node == nil {
		return nil
	}
	for i := 0; i+1 < len(o.Content); i += 2 {
		if o.Content[i].Value == name {
			return o.Content[i+1]
		}
	}
	return nil
}

// set replaces the member of a name, or appends it.
func (o object) set(name string, value *yaml.Node) {
	for i := 0; i+1 < len(o.Content); i += 2 {
		if o.Content[i].Value == name {
			o.Content[i+1] = value
			return
		}
	}
	o.Content = append(o.Content, text(name), value)
}

// remove takes the member of a name away.
func (o object) remove(name string) {
	if o.Node == nil {
		return
	}
	for i := 0; i+1 < len(o.Content); i += 2 {
		if o.Content[i].Value == name {
			o.Content = append(o.Content[:i], o.Content[i+2:]...)
			return
		}
	}
}

// names are the names of the members, in order.
func (o object) names() []string {
	var names []string
	for i := 0; o.Node != nil && i+1 < len(o.Content); i += 2 {
		names = append(names, o.Content[i].Value)
	}
	return names
}

// child is the object of a name; the zero object if it is absent or null.
func (o object) child(name string) (object, error) {
	n := o.get(name)
	switch {
	case n == nil || n.Tag == "!!null":
		return object{}, nil
	case n.Kind != yaml.MappingNode:
		return object{}, fmt.Errorf("%s is not an object", name)
	}
	return object{n}, nil
}

// ensure is the object of a name, made if it is absent or null.
func (o object) ensure(name string) object {
	if n := o.get(name); n != nil && n.Kind == yaml.MappingNode {
		return object{n}
	}
	made := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	o.set(name, made)
	return object{made}
}

// text is the text of a member; "" if it is absent.
func (o object) text(name string) string {
	if n := o.get(name); n != nil && n.Kind == yaml.ScalarNode && n.Tag != "!!null" {
		return n.Value
	}
	return ""
}
