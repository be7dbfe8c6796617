package update

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The operator compares the text of two configs, not their meaning. A file in another encoding, a member with the
// default value, or a list in another order is a change. A rendered MachineConfig has no empty lists, so they are no
// difference.

// canonical returns a value's JSON, which is equal if and only if the operator finds two values
// equal.
func canonical(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("%+v", v)
	}
	return string(text)
}

// same reports whether the operator finds two values equal.
func same(a, b any) bool { return canonical(a) == canonical(b) }

// sameList is like same for lists, of which nil and an empty one are equal.
func sameList[V any](a, b []V) bool { return len(a) == 0 && len(b) == 0 || same(a, b) }

// formOnly describes a difference between two values that mean the same, by the members that
// differ.
func formOnly(a, b any) string {
	was, is := members(a), members(b)
	var differ []string
	for _, name := range union(was, is) {
		if string(was[name]) != string(is[name]) {
			differ = append(differ, name)
		}
	}
	return "in form only: " + strings.Join(differ, ", ")
}

func members(v any) map[string]json.RawMessage {
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(canonical(v)), &all); err != nil {
		return nil
	}
	return all
}

// union returns the names in either of two maps, sorted.
func union[V any](a, b map[string]V) []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(names)
	return slices.Compact(names)
}

// byName returns the elements of a list by their names.
func byName[V any](list []V, name func(V) string) map[string]*V {
	named := map[string]*V{}
	for i, v := range list {
		named[name(v)] = &list[i]
	}
	return named
}

// value dereferences a pointer; nil is the zero value.
func value[V any](p *V) (v V) {
	if p != nil {
		v = *p
	}
	return v
}
