package provision

import (
	"bytes"
	"errors"

	"go.yaml.in/yaml/v3"

	"machine-pivot/internal/fault"
)

// IntoButane returns a Butane config of Fedora CoreOS that merges an Ignition config, in addition to what it has. Its
// comments stay.
func IntoButane(text, config []byte) ([]byte, error) {
	var root yaml.Node
	err := yaml.Unmarshal(text, &root)
	if err == nil && (len(root.Content) != 1 || root.Content[0].Kind != yaml.MappingNode) {
		err = errors.New("it is no object")
	}
	if err == nil && (member(root.Content[0], "variant") == nil || member(root.Content[0], "variant").Value != "fcos") {
		err = errors.New("it has no \"variant: fcos\"")
	}
	var merge *yaml.Node
	if err == nil {
		merge, err = mergeOf(root.Content[0])
	}
	if err != nil {
		return nil, fault.New(fault.BadInput, "cannot use the Butane config: %w", err).WithHint("Butane of Fedora CoreOS begins with variant: fcos and version: 1.5.0")
	}
	entry := &yaml.Node{Kind: yaml.MappingNode}
	setMember(entry, "inline", &yaml.Node{Kind: yaml.ScalarNode, Value: string(config), Style: yaml.LiteralStyle})
	merge.Content = append(merge.Content, entry)
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	err = errors.Join(encoder.Encode(&root), encoder.Close())
	return out.Bytes(), err
}

// mergeOf returns the list ignition.config.merge, and makes what is missing on the way.
func mergeOf(n *yaml.Node) (*yaml.Node, error) {
	for _, step := range []struct {
		key  string
		kind yaml.Kind
	}{{"ignition", yaml.MappingNode}, {"config", yaml.MappingNode}, {"merge", yaml.SequenceNode}} {
		if member(n, "replace") != nil {
			return nil, errors.New("ignition.config.replace would replace what pivot adds")
		}
		next := member(n, step.key)
		if next == nil || next.Tag == "!!null" {
			next = &yaml.Node{Kind: step.kind}
			setMember(n, step.key, next)
		}
		if next.Kind != step.kind {
			return nil, errors.New(step.key + " has another type than in Butane")
		}
		n = next
	}
	return n, nil
}

func member(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// setMember adds a member, or replaces it.
func setMember(n *yaml.Node, key string, value *yaml.Node) {
	if old := member(n, key); old != nil {
		*old = *value
		return
	}
	n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, value)
}
