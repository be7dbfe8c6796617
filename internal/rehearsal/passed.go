package rehearsal

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/rehearse"
	"machine-pivot/internal/verdict"
)

// passedPath is the record of the last system that passed in this boot, relative to the root directory.
const passedPath = "run/pivot/passed.json"

// passed is that record.
type passed struct {
	Digest string            `json:"digest"` // of all that was judged, and of the program that judged it
	Found  []verdict.Finding `json:"found"`  // warnings
}

// asked judges a change by the facts of the machine. A change that has passed in this boot, as with a download before it, is
// not judged again; one of which something is not known, or that is refused, is.
func (f *feature) asked(ctx context.Context, change rehearse.Change, facts rehearse.Facts) (found []verdict.Finding, err error) {
	file := filepath.Join(f.m.Host.Root, passedPath)
	digest, err := f.digestOf(change, facts)
	if err != nil {
		return nil, err
	}
	var before passed
	if data, err := os.ReadFile(file); err == nil && json.Unmarshal(data, &before) == nil && before.Digest == digest {
		return before.Found, nil
	}
	found, err = rehearse.Stage{Self: f.m.Self, Repo: f.m.Host.Sysroot().RepoPath()}.Judge(ctx, change, facts)
	if err != nil || slices.ContainsFunc(found, func(f verdict.Finding) bool { return f.Weight != verdict.Warned }) {
		return found, err
	}
	data, err := json.Marshal(passed{digest, found})
	if err == nil && os.MkdirAll(filepath.Dir(file), 0o755) == nil {
		_ = hostfiles.Replace(hostfiles.OS{}, file, data, 0o644) // without it, it is judged again
	}
	return found, err
}

// digestOf returns a digest of a change, the facts and this program.
func (f *feature) digestOf(change rehearse.Change, facts rehearse.Facts) (string, error) {
	program, err := os.Stat(f.m.Self)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal([]any{change, facts, program.Size(), program.ModTime()})
	return fmt.Sprintf("sha256:%x", sha256.Sum256(text)), err
}
