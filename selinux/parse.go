package selinux

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// none stands in place of a label for "no label".
const none = "<<none>>"

// add adds the lines of a file of patterns: "PATTERN [-TYPE] LABEL".
func (c *Contexts) add(text string) error {
	number := 0
	for line := range strings.Lines(text) {
		number++
		fields := strings.FieldsFunc(line, isBlank)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		s, err := parseSpec(fields)
		if err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		if path, ok := literal(s.pattern); ok {
			c.literals[path] = append(c.literals[path], s)
			continue
		}
		c.patterns.add(s)
	}
	return nil
}

func isBlank(r rune) bool {
	return r == ' ' || r == '\t' || r == '\n' || r == '\r' || r == '\v' || r == '\f'
}

func parseSpec(fields []string) (*spec, error) {
	s := &spec{pattern: fields[0]}
	if strings.ContainsFunc(s.pattern, func(r rune) bool { return r >= 0x80 }) {
		return nil, fmt.Errorf("the pattern %q has characters that are not of ASCII", s.pattern)
	}
	switch len(fields) {
	case 2:
	case 3:
		var known bool
		if s.mode, known = fileType(fields[1]); !known {
			return nil, fmt.Errorf("unknown file type %q", fields[1])
		}
	default:
		return nil, fmt.Errorf("%d fields in place of 2 or 3", len(fields))
	}
	if label := fields[len(fields)-1]; label != none {
		s.label = label
	}
	s.prepare()
	return s, nil
}

// fileType is the type that a flag of file_contexts(5) stands for.
func fileType(flag string) (uint32, bool) {
	switch flag {
	case "--":
		return unix.S_IFREG, true
	case "-d":
		return unix.S_IFDIR, true
	case "-l":
		return unix.S_IFLNK, true
	case "-c":
		return unix.S_IFCHR, true
	case "-b":
		return unix.S_IFBLK, true
	case "-p":
		return unix.S_IFIFO, true
	case "-s":
		return unix.S_IFSOCK, true
	}
	return 0, false
}

// substitutions are equivalences of paths: what begins with from is looked up as
// if it began with to.
type substitutions []struct{ from, to string }

// parseSubstitutions reads the lines "FROM TO".
func parseSubstitutions(text string) (subs substitutions) {
	for line := range strings.Lines(text) {
		fields := strings.FieldsFunc(line, isBlank)
		if len(fields) < 2 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		subs = append(subs, struct{ from, to string }{fields[0], fields[1]})
	}
	return subs
}

// apply replaces the beginning of a path, once: by the last line that fits.
func (subs substitutions) apply(path string) string {
	for i := len(subs) - 1; i >= 0; i-- {
		rest, ok := strings.CutPrefix(path, subs[i].from)
		if !ok || rest != "" && rest[0] != '/' {
			continue
		}
		if subs[i].to == "/" {
			rest = strings.TrimPrefix(rest, "/")
		}
		return subs[i].to + rest
	}
	return path
}
