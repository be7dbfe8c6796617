package kargs

import (
	"errors"
	"fmt"
	"strings"
)

// LegacyPath is the file with the lines of ParseLegacy.
const LegacyPath = "/etc/pivot/kernel-args"

// ParseLegacy parses the file at LegacyPath, with which installers before 4.5 and
// administrators requested kernel arguments. Each line has ADD or DELETE and one argument. Empty
// lines and lines that begin with "#" are ignored. The error has one line for each invalid line;
// the tools of that time silently skipped them.
func ParseLegacy(text string) (Change, error) {
	var change Change
	var wrong []error
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		verb, rest, _ := strings.Cut(line, " ")
		args := Split(rest)
		switch {
		case verb == "ADD" && len(args) == 1:
			change.New = append(change.New, args[0])
		case verb == "DELETE" && len(args) == 1:
			change.Delete = append(change.Delete, args[0])
		default:
			wrong = append(wrong, fmt.Errorf("line %d: %.100q is not ADD or DELETE and one argument", i+1, line))
		}
	}
	return change, errors.Join(wrong...)
}
