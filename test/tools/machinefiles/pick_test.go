package machinefiles_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/test/tools/machinefiles"
)

func TestPick(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "sub/c"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.Repeat(name, 10)), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	// No file may have more than a hundredth of all bytes. Three files are too few, so each is picked several times.
	files := machinefiles.Pick([]string{dir}, 9, 9000, 1)
	if len(files) < 9 || machinefiles.Bytes(files) < int64(9*10) {
		t.Fatalf("picked %+v", files)
	}
	contents := map[string]bool{}
	for _, f := range files {
		path := filepath.Join(t.TempDir(), f.Path)
		if err := f.CopyTo(path, byte(f.Again)); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(path)
		if err != nil || int64(len(content)) != f.Size {
			t.Errorf("%+v: content %q, %v", f, content, err)
		}
		contents[string(content)] = true
	}
	if len(contents) != len(files) {
		t.Errorf("%d contents of %d files", len(contents), len(files))
	}
	copied := filepath.Join(t.TempDir(), "below/copy")
	if err := machinefiles.Copy(filepath.Join(dir, "a"), copied); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(copied); err != nil || info.Mode() != 0o750 || info.Size() != 10 {
		t.Errorf("copied %v, %v", info, err)
	}
}
