package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// failure is a failed test with its messages.
type failure struct {
	name string
	said []string
}

// most is the maximum number of lines of one test in the report. The whole output is above.
const most = 20

type failures []failure

// report returns the failed tests with their messages, to be repeated at the end of the output,
// where readers of a long run look first. It is "" if nothing failed.
func (f failures) report() string {
	var b strings.Builder
	for _, one := range f {
		fmt.Fprintf(&b, "failed: %s\n", one.name)
		for _, line := range one.said[max(0, len(one.said)-most):] {
			fmt.Fprintf(&b, "    %s\n", line)
		}
	}
	return b.String()
}

// said matches the prefix of a test message: file and line.
var said = regexp.MustCompile(`^ +[a-z0-9_]+\.go:[0-9]+: `)

// messages returns the messages of a test from its output, with their continuation lines, except
// lines of a console, which begin with "| ".
func messages(output []string) (lines []string) {
	within := false
	for line := range strings.Lines(strings.Join(output, "")) {
		line = strings.TrimRight(line, "\n")
		switch place := said.FindString(line); {
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
