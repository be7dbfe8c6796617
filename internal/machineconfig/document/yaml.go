package document

import (
	"encoding/json"
	"math"
	"strconv"

	"go.yaml.in/yaml/v3"

	"machine-pivot/internal/machineconfig/jsonpath"
	"machine-pivot/internal/problem"
)

// The bounds of a document: how deep it goes, and how many nodes the aliases of
// YAML may stand for, which a few lines can make billions.
const (
	maxDepth   = 100
	maxAliased = 10_000
)

// yamlReader turns a YAML document into the values that the same document in
// JSON would have, and reports what JSON has no words for.
type yamlReader struct {
	report  *problem.Report
	path    []any
	inAlias int // aliases around the node that is being read
	aliased int // nodes read through aliases
	stopped bool
}

func (r *yamlReader) fail(n *yaml.Node, message string) { r.report.Add(r.wrong(n, message)) }

// wrong is a problem of what is being read.
func (r *yamlReader) wrong(n *yaml.Node, message string) problem.Problem {
	p := problem.Errorf("$"+jsonpath.Of(r.path...), "%s", message)
	p.Line = n.Line
	return p
}

// stop ends the reading of a document that is too large.
func (r *yamlReader) stop(n *yaml.Node, message string) any {
	if !r.stopped {
		r.fail(n, message)
		r.stopped = true
	}
	return nil
}

func (r *yamlReader) value(n *yaml.Node) any {
	if r.stopped {
		return nil
	}
	if len(r.path)+r.inAlias > maxDepth {
		return r.stop(n, "it is nested too deeply")
	}
	if r.inAlias > 0 {
		if r.aliased++; r.aliased > maxAliased {
			return r.stop(n, "its aliases stand for too many values: this grows beyond bounds when they are written out")
		}
	}
	switch n.Kind {
	case yaml.DocumentNode:
		return r.value(n.Content[0])
	case yaml.AliasNode:
		r.inAlias++
		defer func() { r.inAlias-- }()
		return r.value(n.Alias)
	case yaml.MappingNode:
		return r.mapping(n)
	case yaml.SequenceNode:
		return r.sequence(n)
	}
	return r.scalar(n)
}

func (r *yamlReader) mapping(n *yaml.Node) any {
	if tag := n.ShortTag(); tag != "!!map" {
		r.fail(n, "the YAML tag "+problem.Quoted(tag)+" has no meaning here")
	}
	object := make(map[string]any, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		switch {
		case key.Kind != yaml.ScalarNode || key.ShortTag() == "!!null":
			r.fail(key, "a member's name must be text")
			continue
		case key.ShortTag() == "!!merge":
			r.report.Add(r.wrong(key, `the merge key "<<" is not supported`).WithHint("write the members out"))
			continue
		}
		r.path = append(r.path, key.Value)
		if _, again := object[key.Value]; again {
			r.fail(key, "it is there more than once")
		}
		object[key.Value] = r.value(n.Content[i+1])
		r.path = r.path[:len(r.path)-1]
	}
	return object
}

func (r *yamlReader) sequence(n *yaml.Node) any {
	if tag := n.ShortTag(); tag != "!!seq" {
		r.fail(n, "the YAML tag "+problem.Quoted(tag)+" has no meaning here")
	}
	array := make([]any, 0, len(n.Content))
	for i, element := range n.Content {
		r.path = append(r.path, i)
		array = append(array, r.value(element))
		r.path = r.path[:len(r.path)-1]
	}
	return array
}

func (r *yamlReader) scalar(n *yaml.Node) any {
	switch tag := n.ShortTag(); tag {
	case "!!str":
		return n.Value
	case "!!timestamp": // JSON has none; readers take it as text
		return n.Value
	case "!!null":
		return nil
	case "!!bool":
		var b bool
		if n.Decode(&b) == nil {
			return b
		}
	case "!!int":
		if i, err := strconv.ParseInt(n.Value, 0, 64); err == nil { // 0644 is octal
			return json.Number(strconv.FormatInt(i, 10))
		}
	case "!!float":
		if f, err := strconv.ParseFloat(n.Value, 64); err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
			return json.Number(strconv.FormatFloat(f, 'g', -1, 64))
		}
	default:
		r.fail(n, "the YAML tag "+problem.Quoted(tag)+" has no meaning here")
		return n.Value
	}
	r.fail(n, problem.Quoted(n.Value)+" is not a value that JSON can hold")
	return nil
}

// yamlLines fills in the lines of paths in a document that was read before.
func yamlLines(root *yaml.Node, wanted map[string]int) {
	var walk func(n *yaml.Node, path string, line, depth int)
	walk = func(n *yaml.Node, path string, line, depth int) {
		if _, want := wanted[path]; !want || depth > maxDepth {
			return // nor is anything below it: with a path its parents are wanted
		}
		wanted[path] = line
		switch n.Kind {
		case yaml.DocumentNode:
			walk(n.Content[0], path, n.Content[0].Line, depth)
		case yaml.AliasNode:
			walk(n.Alias, path, line, depth+1)
		case yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				key := n.Content[i]
				walk(n.Content[i+1], path+jsonpath.Member(key.Value), key.Line, depth+1)
			}
		case yaml.SequenceNode:
			for i, element := range n.Content {
				walk(element, path+jsonpath.Element(i), element.Line, depth+1)
			}
		}
	}
	walk(root, "$", 1, 0)
}
