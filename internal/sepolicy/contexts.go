package sepolicy

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// contextsDir is the directory in a policy that contains the file contexts.
const contextsDir = "contexts/files"

// The names of the files in contextsDir.
const (
	contextsFile = "file_contexts"
	subsFile     = contextsFile + ".subs"
	distSubsFile = contextsFile + ".subs_dist"

	compiledSuffix = ".bin"
)

// patternFiles returns the names of the pattern files, in order. If several patterns match, a
// literal one takes precedence, and then the last one of the last file.
func patternFiles() []string {
	return []string{contextsFile, contextsFile + ".homedirs", contextsFile + ".local"}
}

// Contexts are the file contexts of a policy, which map paths to labels. They are safe for
// concurrent use.
type Contexts struct {
	digest         [sha256.Size]byte  // of all files that were read
	literals       map[string][]*spec // patterns that match a single path, by that path, in order
	patterns       *stem
	subs, distSubs substitutions
	room           *room
}

// InvalidError is the error for file contexts that are not in the format of file_contexts(5), or are
// larger than those of any OS.
type InvalidError struct{ Err error }

func (e *InvalidError) Error() string { return e.Err.Error() }

func (e *InvalidError) Unwrap() error { return e.Err }

// asInvalid returns an InvalidError; nil stays nil.
func asInvalid(err error) error {
	if err != nil {
		return &InvalidError{err}
	}
	return nil
}

// Contexts reads the file contexts of a policy. Only the file file_contexts must exist.
//
// If a pattern file has a compiled form (".bin"), that is read instead of the text. libselinux
// does the same, unless the compiled form is older; in an ostree tree all files have the same
// modification time.
func (f Files) Contexts(policy string) (*Contexts, error) {
	if policy == "" {
		return nil, errors.New("cannot read SELinux's file contexts: /etc/selinux/config names no SELINUXTYPE")
	}
	all := sha256.New()
	c := &Contexts{literals: map[string][]*spec{}, patterns: &stem{}, room: newRoom()}
	read := func(name string) ([]byte, error) {
		data, err := f(path.Join(policy, contextsDir, name))
		if err == nil {
			fmt.Fprintf(all, "%s %d\n%s", name, len(data), data)
			err = asInvalid(c.room.bytes.Take(int64(len(data))))
		}
		return data, err
	}
	for _, name := range patternFiles() {
		lines, err := readLines(read, name, c.room)
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
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			*subs.into, err = parseSubstitutions(string(text))
			err = asInvalid(err)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read SELinux's file contexts: %s: %w", subs.name, err)
		}
	}
	c.digest = [sha256.Size]byte(all.Sum(nil))
	return c, nil
}

// Same reports whether two contexts were read from identical files and therefore assign the
// same labels. It returns false if either is nil.
func (c *Contexts) Same(other *Contexts) bool {
	return c != nil && other != nil && c.digest == other.digest
}

// readLines reads a pattern file, in its compiled form if there is one.
func readLines(read func(name string) ([]byte, error), name string, room *room) ([]line, error) {
	compiled, err := read(name + compiledSuffix)
	if err == nil {
		var lines []line
		if lines, err = parseCompiled(compiled, room); err == nil {
			return lines, nil
		}
		err = asInvalid(err)
	}
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errUnknownVersion) {
		return nil, fmt.Errorf("%s%s: %w", name, compiledSuffix, err)
	}
	text, err := read(name)
	var lines []line
	if err == nil {
		lines, err = parseText(string(text), room)
		err = asInvalid(err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return lines, nil
}

// Label returns the label for an absolute path and a file type. known is false if the policy
// has no label for it. If a pattern cannot be evaluated, the error is a PatternError. If the policy
// takes too much work, it wraps guard.ErrTooMuch.
func (c *Contexts) Label(name string, mode fs.FileMode) (label string, known bool, err error) {
	name = bytewise(c.distSubs.apply(c.subs.apply(squeeze(name))))
	kind := unixType(mode)
	if err := c.room.steps.Take(int64(len(c.literals[name])) * stepsOfPattern); err != nil {
		return "", false, err
	}
	for _, s := range slices.Backward(c.literals[name]) {
		if s.fits(kind) {
			return s.label, s.label != "", nil
		}
	}
	candidates, steps := c.patterns.candidates(name), int64(0)
	for s := candidates.next(); s != nil; s = candidates.next() {
		steps += stepsOfPattern
		if !s.fits(kind) {
			continue
		}
		if matches, err := s.matches(name, c.room); err != nil || matches {
			err = errors.Join(err, c.room.steps.Take(steps))
			return s.label, s.label != "" && err == nil, err
		}
	}
	return "", false, c.room.steps.Take(steps)
}

// squeeze replaces repeated slashes by one, and removes a slash at the end.
func squeeze(path string) string {
	for strings.Contains(path, "//") {
		path = strings.ReplaceAll(path, "//", "/")
	}
	if len(path) > 1 {
		path = strings.TrimSuffix(path, "/")
	}
	return path
}

// bytewise returns a text with one character for each byte of s, so that "." in a pattern
// matches one byte, as in libselinux, instead of a multi-byte character.
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
