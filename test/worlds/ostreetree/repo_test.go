package ostreetree_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/ostreetree"
)

// TestInit: each repository equals one made by the real ostree.
func TestInit(t *testing.T) {
	need.Ostree(t)
	for _, mode := range []string{"bare", "archive"} {
		made := filepath.Join(t.TempDir(), "made")
		if _, err := ostreetree.Ostree("init", "--repo="+made, "--mode="+mode); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			repo := filepath.Join(t.TempDir(), "repo")
			if err := ostreetree.Init(repo, mode); err != nil {
				t.Fatal(err)
			}
			if got, want := listing(t, repo), listing(t, made); got != want {
				t.Errorf("%s: got\n%swant\n%s", mode, got, want)
			}
		}
	}
}

// listing returns a line for each file, with its mode and content.
func listing(t *testing.T, root string) (lines string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		var content []byte
		if err == nil && !d.IsDir() {
			content, err = os.ReadFile(filepath.Join(root, path))
		}
		lines += fmt.Sprintf("%s %s %q\n", info.Mode(), path, content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}
