package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// failure is a failed test with its messages.
type failure struct {
	name     string
	messages []string
}

// maxLines is how many lines of a test report repeats. The whole output has been printed before.
const maxLines = 20

type failures []failure

// report returns a list of the failed tests with their messages, or "" if nothing failed. It is
// printed at the end, where the reader of a long run looks first.
func (f failures) report() string {
	var b strings.Builder
	for _, one := range f {
		fmt.Fprintf(&b, "failed: %s\n", one.name)
		for _, line := range one.messages[max(0, len(one.messages)-maxLines):] {
			fmt.Fprintf(&b, "    %s\n", line)
		}
	}
	return b.String()
}

// location matches what package testing prints before a message: the file and the line.
var location = regexp.MustCompile(`^ +[a-z0-9_]+\.go:[0-9]+: `)

// messages returns the messages in a test's output, with their continuation lines. It omits lines of
// a machine's console, which begin with "| ".
func messages(output []string) (lines []string) {
	within := false
	for line := range strings.Lines(strings.Join(output, "")) {
		line = strings.TrimRight(line, "\n")
		switch place := location.FindString(line); {
		case place != "":
			if within = !strings.HasPrefix(line[len(place):], "| "); !within {
				continue
			}
		case strings.HasPrefix(line, "panic: "):
			within = true
		case !within || !strings.HasPrefix(line, "        "):
			within = false
			continue
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	return slices.Clip(lines)
}
