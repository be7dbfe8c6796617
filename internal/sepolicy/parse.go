package sepolicy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"machine-pivot/internal/guard"
)

// none is written instead of a label for files that get no label.
const none = "<<none>>"

// parseText parses a pattern file with lines "PATTERN [-TYPE] LABEL".
func parseText(text string, room *room) (lines []line, err error) {
	number := uint32(0)
	labels := map[string]string{} // each label once, and not as a part of the text, which is freed
	for l := range strings.Lines(text) {
		number++
		fields, err := fieldsOf(l)
		if err == nil && len(fields) == 0 {
			continue
		}
		var parsed line
		if err == nil {
			parsed, err = parseLine(fields)
		}
		if err == nil {
			err = room.line(len(parsed.pattern), len(parsed.label))
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if _, known := labels[parsed.label]; !known {
			label := strings.Clone(parsed.label)
			labels[label] = label
		}
		parsed.pattern, parsed.label = strings.Clone(parsed.pattern), labels[parsed.label]
		parsed.number = number
		lines = append(lines, parsed)
	}
	return lines, nil
}

// fieldsOf returns the fields of a line; none for a comment.
func fieldsOf(line string) ([]string, error) {
	line = strings.TrimLeftFunc(line, isBlank)
	switch {
	case strings.HasPrefix(line, "#"):
		return nil, nil
	case len(line) > 3*maxPattern:
		return nil, errors.New("it is too long")
	}
	return strings.FieldsFunc(line, isBlank), nil
}

// add appends lines. Later lines have precedence over earlier ones.
func (c *Contexts) add(lines []line) {
	for _, l := range lines {
		s := newSpec(l)
		if path, ok := literal(s.pattern); ok {
			c.literals[path] = append(c.literals[path], s)
			continue
		}
		c.patterns.add(s)
	}
}

func isBlank(r rune) bool {
	return r == ' ' || r == '\t' || r == '\n' || r == '\r' || r == '\v' || r == '\f'
}

func parseLine(fields []string) (line, error) {
	l := line{pattern: fields[0], label: fields[len(fields)-1]}
	if strings.ContainsFunc(l.pattern, func(r rune) bool { return r >= 0x80 }) {
		return l, fmt.Errorf("the pattern %q has characters that are not of ASCII", l.pattern)
	}
	switch len(fields) {
	case 2:
	case 3:
		var known bool
		if l.mode, known = typeOfFlag(fields[1]); !known {
			return l, fmt.Errorf("%q is no kind of file", fields[1])
		}
	default:
		return l, fmt.Errorf("it has %d fields, want a path, perhaps a kind of file, and a label", len(fields))
	}
	return l, nil
}

// substitutions are path equivalences: a path that begins with from is looked up as if it
// began with to.
type substitutions []struct{ from, to string }

// parseSubstitutions parses lines "FROM TO".
func parseSubstitutions(text string) (subs substitutions, err error) {
	room := guard.NewBudget(maxSubstitutions, "substitutions of paths")
	for line := range strings.Lines(text) {
		fields, err := fieldsOf(line)
		if err == nil && len(fields) < 2 {
			continue
		}
		if err == nil {
			err = room.Take(1)
		}
		if err != nil {
			return nil, err
		}
		subs = append(subs, struct{ from, to string }{strings.Clone(fields[0]), strings.Clone(fields[1])})
	}
	return subs, nil
}

// apply applies the last substitution that matches the beginning of a path, if there is one.
func (subs substitutions) apply(path string) string {
	for _, sub := range slices.Backward(subs) {
		rest, ok := strings.CutPrefix(path, sub.from)
		if !ok || rest != "" && rest[0] != '/' {
			continue
		}
		if sub.to == "/" {
			rest = strings.TrimPrefix(rest, "/")
		}
		return sub.to + rest
	}
	return path
}
