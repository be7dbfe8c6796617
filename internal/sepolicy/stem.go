package sepolicy

import "strings"

// maxStems is the number of leading directories by which patterns are indexed.
const maxStems = 3

// stem is a node in a tree of directories. It holds the patterns that match only below that directory. The tree is an
// index: a path needs to be matched against only few of a policy's thousands of patterns.
type stem struct {
	specs []*spec // in order
	below map[string]*stem
	count int // number of patterns in the tree; in the root only
}

// add adds a pattern after all others.
func (root *stem) add(s *spec) {
	s.order = root.count
	root.count++
	at := root
	for _, name := range stems(s.prefix) {
		next := at.below[name]
		if next == nil {
			next = &stem{}
			if at.below == nil {
				at.below = map[string]*stem{}
			}
			at.below[name] = next
		}
		at = next
	}
	at.specs = append(at.specs, s)
}

// stems returns up to maxStems leading directories of a path or a prefix.
func stems(path string) []string {
	parts := strings.SplitN(strings.TrimPrefix(path, "/"), "/", maxStems+1)
	return parts[:len(parts)-1]
}

// candidates returns the patterns that may match a path.
func (root *stem) candidates(path string) (c candidates) {
	c[0] = root.specs
	at, rest := root, strings.TrimPrefix(path, "/")
	for i := range maxStems { // like stems, but without allocating a result
		name, after, inside := strings.Cut(rest, "/")
		if !inside {
			break
		}
		if at = at.below[name]; at == nil {
			break
		}
		c[i+1], rest = at.specs, after
	}
	return c
}

// candidates holds lists of patterns, each in order.
type candidates [maxStems + 1][]*spec

// next removes and returns the pattern with the highest order of all lists, or nil if there is
// none.
func (c *candidates) next() *spec {
	var last *spec
	from := 0
	for i, specs := range c {
		if n := len(specs); n > 0 && (last == nil || specs[n-1].order > last.order) {
			last, from = specs[n-1], i
		}
	}
	if last != nil {
		c[from] = c[from][:len(c[from])-1]
	}
	return last
}
