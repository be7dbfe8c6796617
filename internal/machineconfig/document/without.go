package document

import (
	"go.yaml.in/yaml/v3"
)

// Find returns the node at a path of steps below n, as Steps returns them: members by name, elements by place in n,
// also behind values that were left out. found is false if there is none; then the node is for reporting only.
func (n Node) Find(steps ...any) (at Node, found bool) {
	at = n
	for i, step := range steps {
		next, found := at.step(step)
		if !found {
			return at.At(PathOf(steps[i:]...)), false
		}
		at = next
	}
	return at, true
}

// step returns the member or element to which one step leads.
func (n Node) step(step any) (next Node, found bool) {
	switch step := step.(type) {
	case string:
		next = n.Get(step)
	case int:
		if kindOf(n.tree) == kindArray && step < len(resolved(n.tree).Content) {
			next = n.element(step, resolved(n.tree).Content[step])
		}
	}
	return next, next.tree != nil
}

// Without returns the document at n without the values at some paths. What is left keeps its
// paths: an element's is the one that it has in the document.
func (n Node) Without(paths map[string]bool) Node {
	if len(paths) == 0 {
		return n
	}
	around := map[string]bool{} // paths with something below them that is left out
	for path := range paths {
		for path = parentOf(path); path != ""; path = parentOf(path) {
			around[path] = true
		}
	}
	n.index = map[*yaml.Node]int{}
	n.tree = n.reduced(paths, around)
	return n
}

// reduced returns a copy of the value without what is left out, and sets the index of elements
// that move.
func (n Node) reduced(paths, around map[string]bool) *yaml.Node {
	tree := resolved(n.tree)
	if !around[n.Path] || tree == nil {
		return n.tree
	}
	rest := *tree
	rest.Content = nil
	if kindOf(tree) == kindArray {
		for i, item := range n.Items() {
			if !paths[item.Path] {
				element := *item.reduced(paths, around) // a copy: an element of this list alone
				rest.Content = append(rest.Content, &element)
				n.index[&element] = i
			}
		}
		return &rest
	}
	for i := 0; i+1 < len(tree.Content); i += 2 {
		key := tree.Content[i]
		member := n.child(Member(key.Value), tree.Content[i+1])
		if !paths[member.Path] {
			rest.Content = append(rest.Content, key, member.reduced(paths, around))
		}
	}
	return &rest
}
