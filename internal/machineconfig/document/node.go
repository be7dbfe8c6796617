package document

import (
	"iter"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"machine-pivot/internal/problem"
)

// Node is a value with its position in the document, so that several problems can be reported
// instead of only the first. A Node without a tree stands for an absent value.
type Node struct {
	Path   string
	Report *problem.Report

	tree *yaml.Node // see tree.go

	// index has the index in the document of those elements that follow a value that Without has
	// left out.
	index map[*yaml.Node]int
}

// Fail reports an error of the value.
func (n Node) Fail(format string, args ...any) { n.Report.Fail(n.Path, format, args...) }

// Warn reports a warning about the value.
func (n Node) Warn(format string, args ...any) { n.Report.Warn(n.Path, format, args...) }

// At returns a node for a path below the value that may not exist, to report a problem there.
func (n Node) At(steps string) Node { return Node{Path: n.Path + steps, Report: n.Report} }

// child returns the value to which one step leads.
func (n Node) child(step string, tree *yaml.Node) Node {
	return Node{Path: n.Path + step, Report: n.Report, tree: tree, index: n.index}
}

// IsNull reports whether the value is null or absent; readers treat both alike.
func (n Node) IsNull() bool { return kindOf(n.tree) == kindNull }

// Members returns the members of an object in document order.
func (n Node) Members() iter.Seq2[string, Node] {
	return func(yield func(string, Node) bool) {
		for key, value := range members(n.tree) {
			if !yield(key.Value, n.child(Member(key.Value), value)) {
				return
			}
		}
	}
}

// Get returns a member of an object, the last one if there are duplicates. An absent member is
// the same as null. Get scans all members; use Members to iterate over an object.
func (n Node) Get(key string) Node {
	var tree *yaml.Node
	for name, value := range members(n.tree) {
		if name.Value == key {
			tree = value
		}
	}
	return n.child(Member(key), tree)
}

// Object reports whether the value is an object. It reports a problem if it is neither an
// object nor null.
func (n Node) Object() bool { return n.must(kindObject, "an object") }

// Objects returns the objects of a document: the items of a list, as clients print several objects, or else the document
// itself.
func (n Node) Objects() []Node {
	kind := n.Get("kind")
	typed := kind.IsText() && strings.HasSuffix(kind.Text(), "List") && !n.Get("items").IsNull()
	switch {
	case n.IsNull():
		n.Fail("it is null, not an object")
		return nil
	case !n.Object():
		return nil
	case !typed && !kind.Is("List"):
		return []Node{n}
	}
	n.Known("a list", "kind", "apiVersion", "metadata", "items")
	return n.Get("items").Items()
}

// must reports whether the value has the wanted kind. It reports a problem if it has another
// kind and is not null.
func (n Node) must(want kind, wanted string) bool {
	is := kindOf(n.tree)
	if is != want && is != kindNull {
		n.Fail("it is %s, not %s", is, wanted)
	}
	return is == want
}

// Text returns the value as a string; null is "".
func (n Node) Text() string {
	if !n.must(kindString, "a string") {
		return ""
	}
	return resolved(n.tree).Value
}

// IsText reports whether the value is a string.
func (n Node) IsText() bool { return kindOf(n.tree) == kindString }

// Is reports whether the value is one of the given strings.
func (n Node) Is(texts ...string) bool {
	return n.IsText() && slices.Contains(texts, resolved(n.tree).Value)
}

// MustBe reports a problem if the value is present and is not the wanted string.
func (n Node) MustBe(want string) {
	if got := n.Text(); n.IsText() && got != want {
		n.Fail("it is %s, not %q", problem.Quoted(got), want)
	}
}

// Boolean returns the value as a boolean; null is false.
func (n Node) Boolean() bool {
	return n.must(kindBoolean, "true or false") && isTrue(resolved(n.tree))
}

// Number returns the value as JSON text, if it is a number.
func (n Node) Number() (text string, ok bool) {
	if kindOf(n.tree) != kindNumber {
		return "", false
	}
	return numberText(resolved(n.tree))
}

// Items returns the elements of an array; null has none.
func (n Node) Items() []Node {
	if !n.must(kindArray, "an array") {
		return nil
	}
	var items []Node
	for i, element := range resolved(n.tree).Content {
		items = append(items, n.element(i, element))
	}
	return items
}

// element returns the element that is at place i now.
func (n Node) element(i int, tree *yaml.Node) Node {
	if at, moved := n.index[tree]; moved {
		i = at
	}
	return n.child(Element(i), tree)
}

// Texts returns an object of strings; null has none.
func (n Node) Texts() map[string]string {
	n.Object()
	var texts map[string]string
	for key, value := range n.Members() {
		if texts == nil {
			texts = map[string]string{}
		}
		texts[key] = value.Text()
	}
	return texts
}

// Known rejects members of an object with names other than the given ones. of is the type of
// the object, for the message.
func (n Node) Known(of string, names ...string) {
	n.Object()
	for key, value := range n.Members() {
		if !slices.Contains(names, key) {
			value.Fail("unknown member; %s has no such", of)
		}
	}
}

// IsEmpty reports whether the value is null, "", {}, [] or an object with empty members
// only.
func (n Node) IsEmpty() bool {
	switch kindOf(n.tree) {
	case kindNull:
		return true
	case kindString:
		return resolved(n.tree).Value == ""
	case kindArray:
		return len(resolved(n.tree).Content) == 0
	case kindObject:
		for _, member := range n.Members() {
			if !member.IsEmpty() {
				return false
			}
		}
		return true
	}
	return false
}

// JSON returns the value as JSON on one line, with the members in document order.
func (n Node) JSON() []byte { return appendJSON(make([]byte, 0, textSize(n.tree)), n.tree) }
