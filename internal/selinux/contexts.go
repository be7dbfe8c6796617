package selinux

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// contextsDir is the directory of a policy with its file contexts.
const contextsDir = "contexts/files"

// The files there. Of two patterns that match, the one in the later file counts.
const (
	contextsFile = "file_contexts"
	subsFile     = contextsFile + ".subs"
	distSubsFile = contextsFile + ".subs_dist"

	compiledSuffix = ".bin"
)

func patternFiles() []string {
	return []string{contextsFile, contextsFile + ".homedirs", contextsFile + ".local"}
}

// Contexts are the file contexts of a policy: which path has which label. They may be used
// by several goroutines at once.
type Contexts struct {
	digest         [sha256.Size]byte  // of all files that were read
	literals       map[string][]*spec // patterns that match one path only, by that path, in order
	patterns       *stem
	subs, distSubs substitutions
}

// Contexts reads the file contexts of a policy. Only the file file_contexts must exist.
//
// If there is a compiled form (".bin") of a file, it is read in place of the text. So does
// libselinux, unless the compiled form is older; in an ostree tree all files have the same
// time.
func (f Files) Contexts(policy string) (*Contexts, error) {
	if policy == "" {
		return nil, errors.New("cannot read SELinux's file contexts: /etc/selinux/config names no SELINUXTYPE")
	}
	all := sha256.New()
	read := func(name string) ([]byte, error) {
		data, err := f(path.Join(policy, contextsDir, name))
		if err == nil {
			fmt.Fprintf(all, "%s %d\n%s", name, len(data), data)
		}
		return data, err
	}
	c := &Contexts{literals: map[string][]*spec{}, patterns: &stem{}}
	for _, name := range patternFiles() {
		lines, err := readLines(read, name)
		if err != nil && (name == contextsFile || !errors.Is(err, fs.ErrNotExist)) {
			return nil, fmt.Errorf("cannot read SELinux's file contexts: %w", err)
		}
		c.add(lines)
	}
	for _, subs := range []struct {
		name string
		into *substitutions
	}{{subsFile, &c.subs}, {distSubsFile, &c.distSubs}} {
		text, err := read(subs.name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("cannot read SELinux's file contexts: %s: %w", subs.name, err)
		}
		*subs.into = parseSubstitutions(string(text))
	}
	c.digest = [sha256.Size]byte(all.Sum(nil))
	return c, nil
}

// Same reports whether two contexts were read from the same files, so that they have the
// same labels. Either may be nil.
func (c *Contexts) Same(other *Contexts) bool {
	return c != nil && other != nil && c.digest == other.digest
}

// readLines reads a file of patterns, in its compiled form if there is one.
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

// Label is the label of a file with an absolute path and a type. known is false if the
// policy has none for it. If a pattern cannot be evaluated the error is a PatternError.
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

// squeeze replaces several slashes by one, and removes those at the end.
func squeeze(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	if len(path) > 1 {
		path = strings.TrimSuffix(path, "/")
	}
	return path
}

// bytewise is a text with one character for each byte of s, so that "." in a pattern matches
// a byte, as in libselinux, and not a character of several bytes.
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
