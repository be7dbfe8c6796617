// Package jsonpath says where things stand in a document: paths as
// $.spec.files[0].mode, and the path of an offset in a JSON text.
package jsonpath

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// plain is a member's name that a path can hold as it is.
var plain = regexp.MustCompile(`^[A-Za-z_][-A-Za-z0-9_]*$`)

// Member is the step to a member of an object: .name, or ["name"] for an unusual one.
func Member(name string) string {
	if plain.MatchString(name) {
		return "." + name
	}
	return "[" + strconv.Quote(name) + "]"
}

// Element is the step to an element of an array.
func Element(i int) string { return "[" + strconv.Itoa(i) + "]" }

// Of is the path of steps: strings are members, integers are elements.
func Of(steps ...any) string {
	var b strings.Builder
	for _, step := range steps {
		if i, ok := step.(int); ok {
			b.WriteString(Element(i))
		} else {
			b.WriteString(Member(fmt.Sprint(step)))
		}
	}
	return b.String()
}

// Parent is the path without its last step; "" of a path without steps.
func Parent(path string) string {
	if strings.HasSuffix(path, `"]`) {
		return path[:max(strings.LastIndex(path[:len(path)-2], `["`), 0)]
	}
	return path[:max(strings.LastIndexAny(path, ".["), 0)]
}
