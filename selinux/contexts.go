package selinux

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// contextsDir is where a policy keeps what it says of files.
const contextsDir = "contexts/files"

// The files there. Of two patterns that match, that of a later file counts.
const (
	contextsFile = "file_contexts"
	subsFile     = contextsFile + ".subs"
	distSubsFile = contextsFile + ".subs_dist"

	compiledSuffix = ".bin"
)

func patternFiles() []string {
	return []string{contextsFile, contextsFile + ".homedirs", contextsFile + ".local"}
}

// Contexts are what a policy says of files: which path gets which label. They can
// be asked from several goroutines at once.
type Contexts struct {
	literals       map[string][]*spec // by path, in order
	patterns       *stem
	subs, distSubs substitutions
}

// Contexts reads what a policy says of files; only its file_contexts must be there.
//
// Of a file that is there compiled too (".bin"), the compiled one counts, as for
// libselinux where it is not older than the text: in a tree of ostree all files have
// the same time.
func (f Files) Contexts(policy string) (*Contexts, error) {
	if policy == "" {
		return nil, errors.New("cannot read SELinux's file contexts: /etc/selinux/config names no SELINUXTYPE")
	}
	read := func(name string) ([]byte, error) { return f(path.Join(policy, contextsDir, name)) }
	c := &Contexts{literals: map[string][]*spec{}, patterns: &stem{}}
	for _, name := range patternFiles() {
		lines, err := readLines(read, name)
		if err != nil && (name == contextsFile || !errors.Is(err, fs.ErrNotExist)) {
			return nil, fmt.Errorf("cannot read SELinux's file contexts: %w", err)
		}
		c.add(lines)
	}
	for name, into := range map[string]*substitutions{subsFile: &c.subs, distSubsFile: &c.distSubs} {
		text, err := read(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("cannot read SELinux's file contexts: %s: %w", name, err)
		}
		*into = parseSubstitutions(string(text))
	}
	return c, nil
}

// readLines reads a file of patterns, compiled or not.
func readLines(read func(name string) ([]byte, error), name string) ([]line, error) {
	compiled, err := read(name + compiledSuffix)
	if err == nil {
		var lines []line
		if lines, err = parseCompiled(compiled); err == nil {
			return lines, nil
		}
	}
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errUnknownVersion) {
		return nil, fmt.Errorf("%s%s: %w", name, compiledSuffix, err)
	}
	text, err := read(name)
	var lines []line
	if err == nil {
		lines, err = parseText(string(text))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return lines, nil
}

// Label is the label of a file by its absolute path and type; false if the policy has
// none for it. A pattern that cannot be matched here is a PatternError.
func (c *Contexts) Label(name string, mode fs.FileMode) (label string, known bool, err error) {
	name = bytewise(c.distSubs.apply(c.subs.apply(squeeze(name))))
	kind := unixType(mode)
	for _, s := range slices.Backward(c.literals[name]) {
		if s.fits(kind) {
			return s.label, s.label != "", nil
		}
	}
	candidates := c.patterns.candidates(name)
	for s := candidates.next(); s != nil; s = candidates.next() {
		if !s.fits(kind) {
			continue
		}
		if matches, err := s.matches(name); err != nil || matches {
			return s.label, s.label != "" && err == nil, err
		}
	}
	return "", false, nil
}

// squeeze makes one slash of several and removes those at the end.
func squeeze(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	if len(path) > 1 {
		path = strings.TrimSuffix(path, "/")
	}
	return path
}

// bytewise has one character for each byte, so that "." matches a byte, as it does
// for libselinux, and not a character of several.
func bytewise(s string) string {
	for i := range len(s) {
		if s[i] < 0x80 {
			continue
		}
		runes := make([]rune, len(s))
		for i := range len(s) {
			runes[i] = rune(s[i])
		}
		return string(runes)
	}
	return s
}
