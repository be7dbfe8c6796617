package cli

import (
	"bytes"
	"encoding/json"

	"go.yaml.in/yaml/v3"

	"machine-pivot/internal/printable"
)

// toYAML converts a JSON document to YAML and keeps the order of its members. The YAML parser
// could read JSON too, but not all characters that JSON allows, nor surrogate pairs.
func toYAML(document []byte) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	node, err := nodeOf(decoder)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(node); err != nil {
		return nil, err
	}
	return printable.YAML(out.Bytes()), nil
}

// nodeOf reads the next value.
func nodeOf(decoder *json.Decoder) (*yaml.Node, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case json.Delim:
		kind := yaml.MappingNode
		if token == '[' {
			kind = yaml.SequenceNode
		}
		return listOf(decoder, kind)
	case string:
		node := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: token}
		if printable.Line(token) != token {
			node.Style = yaml.DoubleQuotedStyle // the only style with escapes
		}
		return node, nil
	}
	var node yaml.Node
	if number, ok := token.(json.Number); ok {
		node = yaml.Node{Kind: yaml.ScalarNode, Value: number.String()}
		return &node, nil
	}
	err = node.Encode(token)
	return &node, err
}

// listOf reads the rest of an array or object. The content of an object is alternating names
// and values.
func listOf(decoder *json.Decoder, kind yaml.Kind) (*yaml.Node, error) {
	list := &yaml.Node{Kind: kind}
	for decoder.More() {
		node, err := nodeOf(decoder)
		if err != nil {
			return nil, err
		}
		list.Content = append(list.Content, node)
	}
	if len(list.Content) == 0 {
		list.Style = yaml.FlowStyle // {} and []
	}
	_, err := decoder.Token()
	return list, err
}
