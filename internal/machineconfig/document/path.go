package document

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// isIdentifier reports whether a member's name needs no quotes in a path.
func isIdentifier(name string) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z':
		case i > 0 && (c == '-' || '0' <= c && c <= '9'):
		default:
			return false
		}
	}
	return name != ""
}

// Member returns the step to a member of an object: .name, or ["name"] for an unusual name.
func Member(name string) string {
	if isIdentifier(name) {
		return "." + name
	}
	return "[" + strconv.Quote(name) + "]"
}

// Element returns the step to an element of an array.
func Element(i int) string { return "[" + strconv.Itoa(i) + "]" }

// PathOf returns the path of steps: integers are elements, everything else is a member.
func PathOf(steps ...any) string {
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

// parentOf returns the path without its last step, or "" for a path without steps.
func parentOf(path string) string {
	if strings.HasSuffix(path, `"]`) {
		return path[:max(strings.LastIndex(path[:len(path)-2], `["`), 0)]
	}
	return path[:max(strings.LastIndexAny(path, ".["), 0)]
}

// stepOf matches a step of a path: .NAME, ["NAME"] or [NUMBER].
var stepOf = regexp.MustCompile(`\.([A-Za-z_][-A-Za-z0-9_]*)|\[("(?:[^"\\]|\\.)*")\]|\[([0-9]+)\]`)

// Steps returns the steps of a path, as PathOf takes them.
func Steps(path string) (steps []any) {
	for _, match := range stepOf.FindAllStringSubmatch(path, -1) {
		switch name, err := strconv.Unquote(match[2]); {
		case match[1] != "":
			steps = append(steps, match[1])
		case match[2] != "" && err == nil:
			steps = append(steps, name)
		default:
			i, _ := strconv.Atoi(match[3])
			steps = append(steps, i)
		}
	}
	return steps
}
