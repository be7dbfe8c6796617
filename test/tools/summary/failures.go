package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// failure is a test that failed, and what it said of that.
type failure struct {
	name string
	said []string
}

// most is how many lines of one test the end repeats: its whole output is above.
const most = 20

type failures []failure

// report repeats at the end, where a long run is looked at first, what failed and why. It
// is "" if nothing failed.
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

// said is what the testing package prints before a message: the file and its line.
var said = regexp.MustCompile(`^ +[a-z0-9_]+\.go:[0-9]+: `)

// messages are the messages of a test among its output, with the lines that go on with
// one, but without lines of a console, which begin with "| ".
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
