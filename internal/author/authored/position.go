package authored

import (
	vjson "github.com/coreos/vcontext/json"
	"github.com/coreos/vcontext/tree"

	"machine-pivot/internal/machineconfig/document"
)

// pathAt returns the path of the innermost value around a byte of valid JSON, without $. A member begins with its name.
func pathAt(raw []byte, offset int64) (path string) {
	at, err := vjson.UnmarshalToContext(raw)
	for err == nil && at != nil {
		var step string
		step, at = childAt(at, offset)
		path += step
	}
	return path
}

// childAt returns the child of a value around a byte, and the step to it; nil if there is none.
func childAt(n tree.Node, offset int64) (string, tree.Node) {
	around := func(from, child tree.Node) bool {
		return from.GetMarker().StartP.Index <= offset && offset < child.GetMarker().EndP.Index
	}
	switch n := n.(type) {
	case tree.MapNode:
		for name, child := range n.Children {
			if around(n.Keys[name], child) {
				return document.Member(name), child
			}
		}
	case tree.SliceNode:
		for i, child := range n.Children {
			if around(child, child) {
				return document.Element(i), child
			}
		}
	}
	return "", nil
}
