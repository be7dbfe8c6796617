package pivot_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
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

// TestContents (D9): kept contents are readable only by root, and are removed when the journal
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
	if err := j.Save(pivot.Record{Phase: pivot.PhaseCommitted, Contents: []hostfiles.Digest{d}}); err != nil {
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
	if err := j.Save(pivot.Record{Phase: pivot.PhaseDone}); err != nil {
		t.Fatal(err)
	}
	if left := contentsIn(t, root); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

// TestOldJournal (D9): the contents in a journal of format 1 are read, and are no longer in the
// journal when it is written again.
func TestOldJournal(t *testing.T) {
	root := t.TempDir()
	j := pivot.JournalIn(root)
	if err := j.Save(pivot.Record{}); err != nil {
		t.Fatal(err)
	}
	write(t, j.Path, `{"format":1,"phase":"committed","bootID":"x","attempt":1,"target":{"kargs":{"New":["a"]},
		"files":[{"path":"/etc/f","mode":384,"uid":1,"gid":2,"content":"c2VjcmV0"},{"path":"/etc/empty","mode":420,"uid":0,"gid":0,"content":null}]}}`)
	r, err := j.Load()
	if err != nil {
		t.Fatal(err)
	}
	want := pivot.Target{Kargs: r.Target.Kargs, Entries: []hostfiles.Entry{
		{Path: "/etc/f", Mode: 0o600, UID: 1, GID: 2, Digest: hostfiles.DigestOf([]byte("secret"))},
		{Path: "/etc/empty", Mode: 0o644, Digest: hostfiles.DigestOf(nil)},
	}}
	if r.Phase != pivot.PhaseCommitted || !r.Target.Same(want) {
		t.Errorf("read as %+v", r)
	}
	if got, err := j.Content(want.Entries[0].Digest); err != nil || string(got) != "secret" {
		t.Errorf("content %q, %v", got, err)
	}
	if err := j.Save(r); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(j.Path); err != nil || strings.Contains(string(data), "c2VjcmV0") {
		t.Errorf("written as %s, %v", data, err)
	}
	if again, err := j.Load(); err != nil || !again.Target.Same(want) {
		t.Errorf("read again as %+v, %v", again, err)
	}
}
