package selinux

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

// Contexts is which file has which label by a policy. It is not for use by several
// goroutines at once.
type Contexts struct {
	exact    map[string][]*rule // paths without a pattern
	patterns []*rule            // of equals the last one counts
	aliases  [2][]alias         // those of the administrator, then the policy's
}

// rule is a line of file_contexts(5).
type rule struct {
	pattern  string         // anchored at both ends
	prefix   string         // what each path that fits begins with
	compiled *regexp.Regexp // once it was needed
	kind     byte           // as ls(1) shows it, '-' for a regular file; 0: any
	label    string         // "": files have none (<<none>>)
}

// Contexts reads the policy's file_contexts with what belongs to it. The compiled
// form (file_contexts.bin) is not read: it is made from the same text.
func (f Files) Contexts(policy string) (*Contexts, error) {
	if policy == "" {
		return nil, errors.New("cannot read SELinux's file contexts: /etc/selinux/config names no SELINUXTYPE")
	}
	name := policy + "/contexts/files/file_contexts"
	c := &Contexts{exact: map[string][]*rule{}}
	// Later ones go before earlier ones; only the first must be there.
	for i, suffix := range []string{"", ".homedirs", ".local"} {
		err := f.lines(name+suffix, c.add)
		if err != nil && (i == 0 || !errors.Is(err, fs.ErrNotExist)) {
			return nil, fmt.Errorf("cannot read SELinux's file contexts: %w", err)
		}
	}
	for i, suffix := range []string{".subs", ".subs_dist"} {
		err := f.lines(name+suffix, func(fields []string) error {
			if len(fields) > 1 {
				c.aliases[i] = append(c.aliases[i], alias{fields[0], fields[1]})
			}
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("cannot read SELinux's file contexts: %w", err)
		}
	}
	return c, nil
}

// lines calls add with the fields of each line that is no comment.
func (f Files) lines(name string, add func(fields []string) error) error {
	text, err := f(name)
	if err != nil {
		return err
	}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if err := add(fields); err != nil {
			return fmt.Errorf("%s, line %d: %w", name, number, err)
		}
	}
	return nil
}

// kinds are what the second of three fields may be.
var kinds = map[string]byte{"--": '-', "-d": 'd', "-l": 'l', "-c": 'c', "-b": 'b', "-p": 'p', "-s": 's'}

// add adds a line: a pattern, perhaps a kind, and a label.
func (c *Contexts) add(fields []string) error {
	r := &rule{pattern: fields[0]}
	switch len(fields) {
	case 2:
	case 3:
		if r.kind = kinds[fields[1]]; r.kind == 0 {
			return fmt.Errorf("%q is no kind of file", fields[1])
		}
	default:
		return fmt.Errorf("it has %d fields, want a path, perhaps a kind of file, and a label", len(fields))
	}
	if label := fields[len(fields)-1]; label != "<<none>>" {
		r.label = label
	}
	literal, whole := literalPrefix(r.pattern)
	if whole {
		c.exact[literal] = append(c.exact[literal], r)
		return nil
	}
	r.prefix = literal
	c.patterns = append(c.patterns, r)
	return nil
}

// Label is the label of a file by its absolute path and kind; false if the policy has
// none for it.
func (c *Contexts) Label(name string, mode fs.FileMode) (string, bool, error) {
	name = c.aliased(path.Clean(name))
	kind := kindOf(mode)
	// A path without a pattern goes before all patterns.
	for i := len(c.exact[name]) - 1; i >= 0; i-- {
		if r := c.exact[name][i]; r.kind == 0 || r.kind == kind {
			return r.label, r.label != "", nil
		}
	}
	for i := len(c.patterns) - 1; i >= 0; i-- {
		r := c.patterns[i]
		if r.kind != 0 && r.kind != kind || !strings.HasPrefix(name, r.prefix) {
			continue
		}
		fits, err := r.fits(name)
		if err != nil {
			return "", false, err
		}
		if fits {
			return r.label, r.label != "", nil
		}
	}
	return "", false, nil
}

// fits reports whether a path is one of the pattern's.
func (r *rule) fits(name string) (bool, error) {
	if r.compiled == nil {
		// Not in parentheses: libselinux puts the anchors beside the text.
		compiled, err := regexp.Compile("(?s)^" + r.pattern + `\z`)
		if err != nil {
			return false, fmt.Errorf("cannot use a pattern of SELinux's file contexts: %w", err)
		}
		r.compiled = compiled
	}
	return r.compiled.MatchString(name), nil
}

// kindOf is the kind of a file as a rule names it.
func kindOf(mode fs.FileMode) byte {
	switch {
	case mode.IsRegular():
		return '-'
	case mode.IsDir():
		return 'd'
	case mode&fs.ModeSymlink != 0:
		return 'l'
	case mode&fs.ModeCharDevice != 0:
		return 'c'
	case mode&fs.ModeDevice != 0:
		return 'b'
	case mode&fs.ModeNamedPipe != 0:
		return 'p'
	}
	return 's'
}

// literalPrefix is the text that each path of a pattern begins with, and whether
// that is all of the pattern.
func literalPrefix(pattern string) (literal string, whole bool) {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		c := pattern[i]
		switch {
		case c == '\\' && i+1 < len(pattern) && strings.IndexByte(`.^$?*+|[({])}-_,`, pattern[i+1]) >= 0:
			i++
			c = pattern[i]
		case strings.IndexByte(`\.^$?*+|[({])}`, c) >= 0:
			return commonPrefix(b.String(), pattern[i:]), false
		}
		b.WriteByte(c)
	}
	return b.String(), true
}

// commonPrefix takes from a literal beginning what the rest of the pattern makes
// optional.
func commonPrefix(literal, rest string) string {
	switch {
	case strings.Contains(rest, "|") && alternates(rest):
		return ""
	case literal != "" && strings.IndexByte("?*{", rest[0]) >= 0:
		return literal[:len(literal)-1]
	}
	return literal
}

// alternates reports whether a pattern has a "|" outside of all parentheses.
func alternates(pattern string) bool {
	depth, class := 0, false
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '\\':
			i++
		case class:
			class = c != ']'
		case c == '[':
			class = true
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == '|' && depth == 0:
			return true
		}
	}
	return false
}

// alias is a line of file_contexts.subs or .subs_dist: what is below the path from
// is looked up as if it were below the path to.
type alias struct{ from, to string }

// aliased is the path by which a file is looked up.
func (c *Contexts) aliased(name string) string {
	for _, list := range c.aliases {
		for i := len(list) - 1; i >= 0; i-- { // the last one counts
			rest, found := strings.CutPrefix(name, list[i].from)
			if found && (rest == "" || rest[0] == '/') {
				name = path.Join(list[i].to, rest)
				break
			}
		}
	}
	return name
}
