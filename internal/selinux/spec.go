package selinux

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"sync"
)

// spec is a pattern and the label of the paths that match it.
type spec struct {
	pattern string
	mode    uint32 // the file type that it is for (S_IFMT), 0 for any
	label   string // "" for no label
	order   int    // among all patterns; of those that match the highest counts

	prefix string // with which all matching paths begin
	tree   bool   // the pattern is prefix(/.*)?, which needs no regular expression

	compile sync.Once // regular expressions are compiled when they are first needed
	part    string    // a text that all matching paths contain
	regex   *regexp.Regexp
	err     error
}

// fits reports whether the pattern is for files of a type (S_IFMT).
func (s *spec) fits(mode uint32) bool {
	return s.mode == 0 || s.mode == mode
}

// newSpec prepares a line for matching.
func newSpec(l line) *spec {
	s := &spec{pattern: l.pattern, mode: l.mode, label: l.label}
	if l.label == none {
		s.label = ""
	}
	if top, ok := strings.CutSuffix(s.pattern, "(/.*)?"); ok {
		if path, ok := literal(top); ok {
			s.prefix, s.tree = path, true
			return s
		}
	}
	s.prefix = literalPrefix(s.pattern)
	return s
}

// matches reports whether the pattern matches the whole path.
func (s *spec) matches(path string) (bool, error) {
	rest, ok := strings.CutPrefix(path, s.prefix)
	if !ok || s.tree {
		// "$" of PCRE matches before a newline at the end, too.
		return ok && (rest == "" || rest == "\n" || rest[0] == '/'), nil
	}
	s.compile.Do(func() {
		if hasAlternatives(s.pattern) {
			s.err = &PatternError{s.pattern, errors.New("an alternative outside of parentheses")}
			return
		}
		if s.regex, s.err = regexp.Compile(`(?s)^` + s.pattern + `\n?\z`); s.err != nil {
			s.err = &PatternError{s.pattern, s.err}
			return
		}
		s.part = literalPart(s.pattern)
	})
	// Most paths that do not match lack the part, which is faster to find out.
	return s.err == nil && strings.Contains(path, s.part) && s.regex.MatchString(path), s.err
}

// PatternError is the error of a pattern that libselinux may accept, but this package does
// not.
type PatternError struct {
	Pattern string
	Err     error
}

func (e *PatternError) Error() string {
	return fmt.Sprintf("cannot match the pattern %q of the SELinux policy: %v", e.Pattern, e.Err)
}

func (e *PatternError) Unwrap() error { return e.Err }

const (
	meta    = `.^$?*+|[({])}` // characters with a special meaning in a pattern
	escaped = meta + `\-_,/`  // characters that stand for themselves after a backslash
)

// literal is the only path that a pattern without metacharacters matches.
func literal(pattern string) (path string, ok bool) {
	path, rest := scanLiteral(pattern)
	return path, rest == ""
}

// scanLiteral splits a pattern before its first metacharacter.
func scanLiteral(pattern string) (path, rest string) {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '\\' && i+1 < len(pattern) && strings.IndexByte(escaped, pattern[i+1]) >= 0:
			i++
			b.WriteByte(pattern[i])
		case c == '\\', strings.IndexByte(meta, c) >= 0:
			return b.String(), pattern[i:]
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), ""
}

// literalPrefix is the text with which all matches of a pattern begin.
func literalPrefix(pattern string) string {
	prefix, rest := scanLiteral(pattern)
	if rest != "" && strings.IndexByte("?*{", rest[0]) >= 0 && prefix != "" {
		prefix = prefix[:len(prefix)-1] // the last character may be absent
	}
	return prefix
}

// literalPart is the longest text that all matches of a pattern contain after their
// literalPrefix. The pattern must be a valid one.
func literalPart(pattern string) (part string) {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil || re.Op != syntax.OpConcat {
		return ""
	}
	for _, sub := range re.Sub[1:] {
		if text := string(sub.Rune); sub.Op == syntax.OpLiteral && sub.Flags&syntax.FoldCase == 0 && len(text) > len(part) {
			part = text
		}
	}
	return part
}

// hasAlternatives reports whether "|" stands outside of parentheses. Releases of libselinux
// differ in what that means: some take the prefix of the first alternative for that of
// all.
func hasAlternatives(pattern string) bool {
	depth, class := 0, false
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '\\':
			i++
		case class:
			class = c != ']'
		case c == '[':
			class = true
			if strings.HasPrefix(pattern[i+1:], "^") {
				i++
			}
			i++ // a bracket as first member of a class does not close it
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
