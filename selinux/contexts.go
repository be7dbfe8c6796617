// Package selinux finds the SELinux label that a policy gives to a path, as
// libselinux does, without a running policy and without C.
//
// Sources: selabel_file(5) and file_contexts(5); the precedence is that of
// libselinux (label_file.c), against which the tests hold it. A policy's own
// equivalences (file_contexts.subs, .subs_dist) are obeyed.
package selinux

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// Dir is where a policy keeps what it says of files, below /etc/selinux/TYPE.
const Dir = "contexts/files"

// The files in Dir. Of two patterns that match, that of a later file counts.
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

// Read reads a policy's contexts. read gives the content of a file by its name in
// Dir, or fs.ErrNotExist; only file_contexts must be there.
//
// Of a file that is there compiled too (".bin"), the compiled one counts, as for
// libselinux where both have the same time: so it is in each tree of ostree.
func Read(read func(name string) ([]byte, error)) (*Contexts, error) {
	c := &Contexts{literals: map[string][]*spec{}, patterns: &stem{}}
	for _, name := range patternFiles() {
		lines, err := readLines(read, name)
		if err != nil && (name == contextsFile || !errors.Is(err, fs.ErrNotExist)) {
			return nil, fmt.Errorf("cannot read SELinux contexts: %w", err)
		}
		c.add(lines)
	}
	for name, into := range map[string]*substitutions{subsFile: &c.subs, distSubsFile: &c.distSubs} {
		text, err := read(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("cannot read SELinux contexts: %s: %w", name, err)
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

// Label is the label of a path, which begins with "/", for a file of the type in
// mode (S_IFMT; 0 for any). It is "" where the policy gives none.
func (c *Contexts) Label(path string, mode uint32) (string, error) {
	path = c.distSubs.apply(c.subs.apply(squeeze(path)))
	path = bytewise(path)
	for _, s := range slices.Backward(c.literals[path]) {
		if s.fits(mode) {
			return s.label, nil
		}
	}
	candidates := c.patterns.candidates(path)
	for s := candidates.next(); s != nil; s = candidates.next() {
		if !s.fits(mode) {
			continue
		}
		if matches, err := s.matches(path); err != nil || matches {
			return s.label, err
		}
	}
	return "", nil
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
