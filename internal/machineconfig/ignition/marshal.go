package ignition

import (
	"bytes"
	"encoding/json"
)

// Marshal writes a config as JSON without the empty objects that the types emit for absent
// members. The result is identical to that of the machine-config operator, and older versions
// of Ignition expect it.
func Marshal(config Config) []byte { return Pruned(config) }

// Tree returns a config as JSON values: maps, slices, strings, json.Number and bool.
func Tree(config Config) map[string]any { return treeOf(config) }

// Pruned is like Marshal for the config type of any version.
func Pruned(config any) []byte { return mustMarshal(treeOf(config)) }

func treeOf(config any) map[string]any {
	var tree map[string]any
	d := json.NewDecoder(bytes.NewReader(mustMarshal(config)))
	d.UseNumber()
	if err := d.Decode(&tree); err != nil {
		panic(err) // it was just encoded
	}
	prune(tree)
	return tree
}

// prune removes members that are empty objects, innermost first.
func prune(value any) {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			prune(member)
			if object, ok := member.(map[string]any); ok && len(object) == 0 {
				delete(v, name)
			}
		}
	case []any:
		for _, element := range v {
			prune(element)
		}
	}
}
