package sepolicy

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"sync"
)

// spec is a pattern and the label for the paths that match it.
type spec struct {
	pattern string
	mode    uint32 // file type to which the pattern applies (S_IFMT), 0 for any
	label   string // "" for no label
	order   int    // position among all patterns; the last pattern that matches counts

	prefix string // all matching paths begin with it
	tree   bool   // the pattern is prefix(/.*)?, which needs no regular expression

	compile sync.Once // compiles the regular expression when it is first needed
	part    string    // all matching paths contain it
	regex   *regexp.Regexp
	size    int64 // of the regular expression, in instructions at most
	err     error
}

// fits reports whether the pattern applies to files of a type (S_IFMT).
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
func (s *spec) matches(path string, room *room) (bool, error) {
	rest, ok := strings.CutPrefix(path, s.prefix)
	if !ok || s.tree {
		// In PCRE, "$" also matches before a newline at the end.
		return ok && (rest == "" || rest == "\n" || rest[0] == '/'), nil
	}
	s.compile.Do(func() { s.err = s.prepare(room) })
	// Most paths that do not match do not contain the part, and that check is faster.
	if s.err != nil || !strings.Contains(path, s.part) {
		return false, s.err
	}
	if err := room.steps.Take(work(s.size, len(path))); err != nil {
		return false, err
	}
	return s.regex.MatchString(path), nil
}

// prepare compiles the regular expression.
func (s *spec) prepare(room *room) error {
	if hasAlternatives(s.pattern) {
		return &PatternError{s.pattern, errors.New("an alternative outside of parentheses")}
	}
	parsed, err := syntax.Parse(s.pattern, syntax.Perl)
	if err != nil {
		return &PatternError{s.pattern, err}
	}
	s.size = cost(parsed)
	if err := room.instructions.Take(s.size); err != nil {
		return err
	}
	if s.regex, err = regexp.Compile(`(?s)^` + s.pattern + `\n?\z`); err != nil {
		return &PatternError{s.pattern, err}
	}
	s.part = literalPart(parsed)
	return nil
}

// PatternError is the error for a pattern that this package does not support, although
// libselinux may.
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
	escaped = meta + `\-_,/`  // characters that match themselves after a backslash
)

// literal returns the only path that a pattern without metacharacters matches. ok is false for
// other patterns.
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

// literalPrefix returns a text with which all matches of a pattern begin.
func literalPrefix(pattern string) string {
	prefix, rest := scanLiteral(pattern)
	if rest != "" && strings.IndexByte("?*{", rest[0]) >= 0 && prefix != "" {
		prefix = prefix[:len(prefix)-1] // the last character is optional
	}
	return prefix
}

// literalPart returns the longest literal text that all matches of a pattern contain after
// their literalPrefix, or "".
func literalPart(re *syntax.Regexp) (part string) {
	if re.Op != syntax.OpConcat {
		return ""
	}
	for _, sub := range re.Sub[1:] {
		if text := string(sub.Rune); sub.Op == syntax.OpLiteral && sub.Flags&syntax.FoldCase == 0 && len(text) > len(part) {
			part = text
		}
	}
	return part
}

// hasAlternatives reports whether a pattern has "|" outside of parentheses. Releases of
// libselinux treat such patterns differently: some apply the prefix of the first alternative
// to all of them.
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
			i++ // a bracket as the first member of a class does not close it
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
