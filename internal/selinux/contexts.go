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
	digest         [sha256.Size]byte  // of all that was read
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

// Same reports whether two policies, each of which may be nil, are known to say the same
// of all files: they were read from the same text.
func (c *Contexts) Same(other *Contexts) bool {
	return c != nil && other != nil && c.digest == other.digest
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
