package kargs

import (
	"errors"
	"fmt"
	"strings"
)

// ParseTuning reads the kernel argument file of the old pivot tool
// (/etc/pivot/kernel-args; openshift/pivot, cmd/root.go): a line "ADD ARG" or
// "DELETE ARG" for each change. Empty lines and those that begin with "#" mean
// nothing; the error names every other line, where the old tool skipped them.
func ParseTuning(text string) (add, remove []string, err error) {
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		verb, arg, _ := strings.Cut(line, " ")
		arg = strings.TrimSpace(arg)
		switch {
		case line == "", strings.HasPrefix(line, "#"):
		case verb == "ADD" && arg != "":
			add = append(add, arg)
		case verb == "DELETE" && arg != "":
			remove = append(remove, arg)
		default:
			err = errors.Join(err, fmt.Errorf("line %d: %q is neither ADD ARG nor DELETE ARG", number, line))
		}
	}
	return add, remove, err
}
