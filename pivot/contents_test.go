package pivot_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/pivot"
)

// contentsIn returns the paths of the kept contents, including hidden files.
func contentsIn(t *testing.T, root string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "var/lib/pivot/contents/*"))
	if err != nil {
		t.Fatal(err)
	}
	hidden, err := filepath.Glob(filepath.Join(root, "var/lib/pivot/contents/.*"))
	if err != nil {
		t.Fatal(err)
	}
	return append(paths, hidden...)
}

// TestContents: kept contents are readable only by root, and are removed when the journal
// no longer names them.
func TestContents(t *testing.T) {
	root := t.TempDir()
	j := pivot.JournalIn(root)
	content := []byte("secret")
	d := hostfiles.DigestOf(content)
	for range 2 { // the second time it exists already
		if err := j.Store(content); err != nil {
			t.Fatal(err)
		}
	}
	kept := contentsIn(t, root)
	if len(kept) != 1 {
		t.Fatalf("kept %q", kept)
	}
	for path, want := range map[string]fs.FileMode{filepath.Dir(kept[0]): fs.ModeDir | 0o700, kept[0]: 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
	write(t, filepath.Join(filepath.Dir(kept[0]), ".x.new"), "what a crash left")
	if err := j.Save(pivot.JournalContent{Phase: pivot.PhaseCommitted, Contents: []hostfiles.Digest{d}}); err != nil {
		t.Fatal(err)
	}
	if got, err := j.Content(d); err != nil || string(got) != "secret" || len(contentsIn(t, root)) != 1 {
		t.Errorf("kept %q: %q, %v", contentsIn(t, root), got, err)
	}
	write(t, kept[0], "secreT")
	if got, err := j.Content(d); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a damaged content: %q, %v", got, err)
	}
	if err := j.Store(content); err != nil {
		t.Fatal(err)
	}
	if got, err := j.Content(d); err != nil || string(got) != "secret" {
		t.Errorf("stored again: %q, %v", got, err)
	}
	if err := j.Save(pivot.JournalContent{Phase: pivot.PhaseDone}); err != nil {
		t.Fatal(err)
	}
	if left := contentsIn(t, root); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}
