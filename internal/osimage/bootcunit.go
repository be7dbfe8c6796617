package osimage

import (
	"errors"
	"strings"
)

// unitValues returns the values of a section of a unit; of a key that occurs twice, the last one.
func unitValues(text, section string) (map[string]string, error) {
	lines, err := joinedLines(text)
	values, within := map[string]string{}, false
	for _, line := range lines {
		switch {
		case line == "":
		case line[0] == '[':
			within = line == "["+section+"]"
		case within:
			key, value, _ := strings.Cut(line, "=")
			values[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	return values, err
}

// errContinued is the error for a line that podman and systemd continue differently.
var errContinued = errors.New("a line ends with two backslashes, or with a backslash and a carriage return: whether the next line belongs to it, podman and systemd answer differently")

// joinedLines returns the lines of a unit, without comments and trimmed, as systemd joins them (systemd.syntax(7)). A
// backslash at the end of a line stands for a space, and the next line belongs to it. Comments in between are left out.
// podman, which reads quadlets, puts nothing for the backslash; in a name of an image either is an error or makes no
// difference.
func joinedLines(text string) (lines []string, err error) {
	var whole strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if start := strings.TrimSpace(line); start != "" && (start[0] == '#' || start[0] == ';') {
			continue
		}
		if strings.HasSuffix(line, `\\`) || strings.HasSuffix(line, "\\\r") {
			return nil, errContinued
		}
		rest, continued := strings.CutSuffix(line, `\`)
		whole.WriteString(rest)
		if continued {
			whole.WriteByte(' ')
			continue
		}
		lines = append(lines, strings.TrimSpace(whole.String()))
		whole.Reset()
	}
	return append(lines, strings.TrimSpace(whole.String())), nil
}
