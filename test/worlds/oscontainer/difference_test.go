package oscontainer_test

import (
	"archive/tar"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"machine-pivot/test/worlds/oscontainer"
)

// TestDifference: the layer has the new, changed and removed files, and nothing else.
func TestDifference(t *testing.T) {
	before, after := t.TempDir(), t.TempDir()
	write := func(dir, name, content string, mode os.FileMode) {
		file := filepath.Join(dir, name)
		check(t, os.MkdirAll(filepath.Dir(file), 0o755))
		check(t, os.WriteFile(file, []byte(content), mode))
	}
	for _, dir := range []string{before, after} {
		write(dir, "etc/same", "same", 0o644)
		check(t, os.Symlink("same", filepath.Join(dir, "etc/link")))
	}
	write(before, "etc/changed", "one", 0o644)
	write(after, "etc/changed", "two", 0o644)
	write(before, "etc/mode", "", 0o644)
	write(after, "etc/mode", "", 0o600)
	write(before, "etc/kind", "a file", 0o644)
	write(after, "etc/kind/new", "in a directory", 0o644)
	write(before, "etc/gone/a", "", 0o644)
	write(before, "etc/gone/b", "", 0o644)
	write(before, "etc/dir/gone", "", 0o644)
	write(after, "etc/dir/new", "", 0o644)
	write(before, "top", "", 0o644)
	entries, err := oscontainer.Difference(before, after)
	check(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name)
		if want := map[string]byte{"etc/kind/": tar.TypeDir}[e.Name]; want != 0 && e.Typeflag != want {
			t.Errorf("%s is of type %c", e.Name, e.Typeflag)
		}
	}
	want := []string{"etc/changed", "etc/dir/new", "etc/kind/", "etc/kind/new", "etc/mode", "etc/dir/.wh.gone", "etc/.wh.gone", ".wh.top"}
	if !slices.Equal(names, want) {
		t.Errorf("entries %q, want %q", names, want)
	}
}
