package document

import (
	"iter"
	"math"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"machine-pivot/internal/problem"
)

// Text in either format is represented as a tree of the YAML parser's nodes, which have the
// order of members, lines, and comments; an edited text keeps them. This file reads such a tree
// as JSON values.

// Limits of a document: its depth, and the number of nodes reached through YAML aliases, which
// a few lines can multiply into billions.
const (
	maxDepth   = 100
	maxAliased = 10_000
)

// kind is a kind of JSON value, as messages name it.
type kind string

const (
	kindNull    kind = "null"
	kindBoolean kind = "a boolean"
	kindString  kind = "a string"
	kindNumber  kind = "a number"
	kindArray   kind = "an array"
	kindObject  kind = "an object"
)

// The tags of scalars. tagJSON is ours, for numbers that were read from JSON.
const (
	tagString    = "!!str"
	tagTimestamp = "!!timestamp" // JSON has no timestamps; readers treat them as strings
	tagNull      = "!!null"
	tagBoolean   = "!!bool"
	tagInteger   = "!!int"
	tagFloat     = "!!float"
	tagJSON      = "!!json-number"
)

// resolved follows an alias and unwraps a document node.
func resolved(n *yaml.Node) *yaml.Node {
	switch {
	case n == nil:
		return nil
	case n.Kind == yaml.AliasNode:
		return n.Alias
	case n.Kind == yaml.DocumentNode:
		return n.Content[0]
	}
	return n
}

// kindOf returns the kind of a value; null if it is absent.
func kindOf(n *yaml.Node) kind {
	n = resolved(n)
	switch {
	case n == nil:
		return kindNull
	case n.Kind == yaml.MappingNode:
		return kindObject
	case n.Kind == yaml.SequenceNode:
		return kindArray
	}
	switch tag := n.ShortTag(); {
	case tag == tagNull || !fitsJSON(n): // values that JSON cannot express were reported before
		return kindNull
	case tag == tagBoolean:
		return kindBoolean
	case tag == tagInteger || tag == tagFloat || tag == tagJSON:
		return kindNumber
	}
	return kindString
}

// fitsJSON reports whether JSON can express a scalar.
func fitsJSON(n *yaml.Node) bool {
	ok := true
	switch n.ShortTag() {
	case tagBoolean:
		var b bool
		ok = n.Decode(&b) == nil
	case tagInteger, tagFloat:
		_, ok = numberText(n)
	}
	return ok
}

// members returns the names and values of an object's members, except names that are not
// text.
func members(n *yaml.Node) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(_, _ *yaml.Node) bool) {
		if kindOf(n) != kindObject {
			return
		}
		content := resolved(n).Content
		for i := 0; i+1 < len(content); i += 2 {
			if wrongName(content[i]) == "" && !yield(content[i], content[i+1]) {
				return
			}
		}
	}
}

// wrongName returns why a node cannot be a member's name, or "".
func wrongName(key *yaml.Node) string {
	switch {
	case key.Kind != yaml.ScalarNode || key.ShortTag() == tagNull:
		return "a member's name must be text"
	case key.ShortTag() == "!!merge":
		return `the merge key "<<" is not supported`
	}
	return ""
}

// isTrue returns the value of a boolean.
func isTrue(n *yaml.Node) bool {
	var b bool
	return n.Decode(&b) == nil && b
}

// numberText returns a number as JSON text, if JSON can express it.
func numberText(n *yaml.Node) (string, bool) {
	switch n.ShortTag() {
	case tagJSON:
		return n.Value, true
	case tagInteger:
		i, err := strconv.ParseInt(n.Value, 0, 64) // 0644 is octal
		return strconv.FormatInt(i, 10), err == nil
	}
	f, err := strconv.ParseFloat(n.Value, 64)
	return strconv.FormatFloat(f, 'g', -1, 64), err == nil && !math.IsInf(f, 0) && !math.IsNaN(f)
}

// checker reports everything in a tree that JSON cannot express or that readers could
// understand differently.
type checker struct {
	report  *problem.Report
	path    []any
	inAlias int // number of aliases around the current node
	aliased int // nodes reached through aliases
	stopped bool
}

func (c *checker) fail(n *yaml.Node, message string) { c.report.Add(c.wrong(n, message)) }

// wrong returns a problem at the current path.
func (c *checker) wrong(n *yaml.Node, message string) problem.Problem {
	p := problem.Errorf("$"+PathOf(c.path...), "%s", message)
	p.Line = n.Line
	return p
}

// stop ends the check of a document that exceeds a limit.
func (c *checker) stop(p problem.Problem) {
	c.report.Add(p)
	c.stopped = true
}

func (c *checker) value(n *yaml.Node) {
	if c.stopped {
		return
	}
	if len(c.path)+c.inAlias > maxDepth {
		c.stop(atLine(n.Line, "it is nested too deeply")) // without the path, which would be too long
		return
	}
	if c.inAlias > 0 {
		if c.aliased++; c.aliased > maxAliased {
			c.stop(c.wrong(n, "its aliases stand for too many values: this grows beyond bounds when they are written out"))
			return
		}
	}
	switch n.Kind {
	case yaml.DocumentNode:
		c.value(n.Content[0])
	case yaml.AliasNode:
		c.inAlias++
		c.value(n.Alias)
		c.inAlias--
	case yaml.MappingNode:
		c.mapping(n)
	case yaml.SequenceNode:
		c.sequence(n)
	default:
		c.scalar(n)
	}
}

func (c *checker) mapping(n *yaml.Node) {
	if tag := n.ShortTag(); tag != "!!map" {
		c.meaningless(n)
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if why := wrongName(key); why != "" {
			p := c.wrong(key, why)
			if key.Kind == yaml.ScalarNode && key.ShortTag() == "!!merge" {
				p = p.WithHint("write the members in place of <<: *NAME")
			}
			c.report.Add(p)
			continue
		}
		c.path = append(c.path, key.Value)
		if seen[key.Value] {
			c.fail(key, "it is there more than once")
		}
		seen[key.Value] = true
		c.value(n.Content[i+1])
		c.path = c.path[:len(c.path)-1]
	}
}

func (c *checker) sequence(n *yaml.Node) {
	if tag := n.ShortTag(); tag != "!!seq" {
		c.meaningless(n)
	}
	for i, element := range n.Content {
		c.path = append(c.path, i)
		c.value(element)
		c.path = c.path[:len(c.path)-1]
	}
}

func (c *checker) scalar(n *yaml.Node) {
	known := []string{tagString, tagTimestamp, tagNull, tagBoolean, tagInteger, tagFloat, tagJSON}
	if !slices.Contains(known, n.ShortTag()) {
		c.meaningless(n)
	}
	if !fitsJSON(n) {
		c.fail(n, problem.Quoted(n.Value)+" is not a value that JSON can hold")
	}
}

func (c *checker) meaningless(n *yaml.Node) {
	c.fail(n, "the YAML tag "+problem.Quoted(n.ShortTag())+" has no meaning here")
}

// lines sets the lines of the paths that are the keys of wanted.
func lines(root *yaml.Node, wanted map[string]int) {
	var walk func(n *yaml.Node, path string, line, depth int)
	walk = func(n *yaml.Node, path string, line, depth int) {
		if _, want := wanted[path]; !want || depth > maxDepth {
			return // nothing below is wanted either: all parents of a wanted path are wanted
		}
		if wanted[path] == 0 {
			wanted[path] = line
		}
		for key, value := range members(n) {
			walk(value, path+Member(key.Value), key.Line, depth+1)
		}
		if kindOf(n) == kindArray {
			for i, element := range resolved(n).Content {
				walk(element, path+Element(i), element.Line, depth+1)
			}
		}
	}
	walk(root, "$", resolved(root).Line, 0)
}
