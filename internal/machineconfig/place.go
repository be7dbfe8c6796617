package machineconfig

import (
	"slices"

	"machine-pivot/internal/machineconfig/document"
)

// place is where a value is in a spec, independently of the order of lists: two MachineConfigs can
// have the same place at different paths.
type place []placeStep

// placeStep leads to a member of an object, or to an element of a list.
type placeStep struct {
	name    string // of a member
	element bool
	key     string // an element is the object with value as its member key; "": the element that is value, as canonical JSON
	value   string
}

// members returns the place of a member of objects.
func members(names ...string) (p place) {
	for _, name := range names {
		p = append(p, placeStep{name: name})
	}
	return p
}

func (p place) member(name string) place { return append(slices.Clone(p), placeStep{name: name}) }

func (p place) item(key, value string) place {
	return append(slices.Clone(p), placeStep{element: true, key: key, value: value})
}

// String returns the place's name for messages.
func (p place) String() (text string) {
	for i, s := range p {
		switch {
		case s.element:
			text += " " + s.value
		case i > 0 && p[i-1].element:
			text += " " + s.name
		case i > 0:
			text += "." + s.name
		default:
			text = s.name
		}
	}
	return text
}

// lists has the elements of the lists of one spec, by their paths, the keys of steps, and the values
// of these. So looking up all elements of a long list reads it once.
type lists map[[2]string]map[string][]document.Node

// elements returns the elements of the list n to which a step leads.
func (l lists) elements(n document.Node, s placeStep) []document.Node {
	at := [2]string{n.Path, s.key}
	if l[at] == nil {
		l[at] = map[string][]document.Node{}
		for _, element := range n.Items() {
			value := canonical(element.JSON())
			if s.key != "" {
				id, found := element.Find(s.key)
				if !found || !id.IsText() {
					continue
				}
				value = id.Text()
			}
			l[at][value] = append(l[at][value], element)
		}
	}
	return l[at][s.value]
}

// all returns the values at a place in a spec: several if a list has elements of one key.
func (l lists) all(p place, n document.Node) (found []document.Node) {
	switch {
	case len(p) == 0:
		return []document.Node{n}
	case !p[0].element:
		return l.all(p[1:], n.Get(p[0].name))
	}
	for _, element := range l.elements(n, p[0]) {
		found = append(found, l.all(p[1:], element)...)
	}
	return found
}

// in returns the first value at the place in a spec.
func (p place) in(n document.Node) document.Node {
	if all := (lists{}).all(p, n); len(all) > 0 {
		return all[0]
	}
	return document.Node{Path: p.nearest(n), Report: n.Report}
}

// nearest returns the path of the place in a spec, or of the list that lacks its element.
func (p place) nearest(n document.Node) string {
	path := n.Path
	for _, s := range p {
		if s.element {
			break
		}
		path += document.Member(s.name)
	}
	return path
}

// put sets the value at the place in a spec; nil removes it.
func (p place) put(at any, value any) any {
	if len(p) == 0 {
		return value
	}
	s := p[0]
	if s.element {
		list, _ := at.([]any)
		return p.putElement(list, value)
	}
	object, ok := at.(map[string]any)
	if !ok {
		if value == nil {
			return at
		}
		object = map[string]any{}
	}
	if object[s.name] = p[1:].put(object[s.name], value); object[s.name] == nil {
		delete(object, s.name)
	}
	return object
}

// putElement sets the value at a place that begins with an element of a list.
func (p place) putElement(list []any, value any) any {
	s := p[0]
	is := func(element any) bool {
		object, ok := element.(map[string]any)
		return ok && object[s.key] == s.value
	}
	i := slices.IndexFunc(list, is)
	switch {
	case i >= 0:
		list[i] = p[1:].put(list[i], value)
	case value != nil:
		list = append(list, p[1:].put(map[string]any{s.key: s.value}, value))
	}
	list = slices.DeleteFunc(list, func(element any) bool { return element == nil })
	if list == nil {
		return nil
	}
	return list
}
