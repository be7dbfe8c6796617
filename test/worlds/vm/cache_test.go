package vm

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
)

// TestKeys checks that every input of a guest changes its key.
func TestKeys(t *testing.T) {
	files := func(name, text string) fs.FS { return fstest.MapFS{name: {Data: []byte(text)}} }
	seen := map[string]bool{}
	for _, f := range []fs.FS{files("guest/a", "1"), files("guest/a", "2"), files("guest/b", "1")} {
		key, err := sumFiles(f)
		if err != nil || seen[key] {
			t.Errorf("key %s, %v: not new", key, err)
		}
		seen[key] = true
	}
	for _, f := range []TreeFile{{Path: "/a"}, {Path: "/a", Mode: 0o600}, {Path: "/b"}, {Path: "/a", Content: []byte("x")}, {Path: "/a", Symlink: "x"}} {
		for _, v := range []version{versionA(), versionB()} {
			for _, policy := range []string{"", "other"} {
				key, err := v.key([]TreeFile{f}, policy)
				if err != nil || seen[key] {
					t.Errorf("key of %s with %+v and policy %q: %s, %v: not new", v.name, f, policy, key, err)
				}
				seen[key] = true
			}
		}
	}
}

func TestWriteTree(t *testing.T) {
	dir := t.TempDir()
	object := filepath.Join(dir, "object")
	if err := os.WriteFile(object, []byte("keep"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(object, filepath.Join(dir, "f")); err != nil {
		t.Fatal(err)
	}
	err := writeTree(dir, []TreeFile{{Path: "/f", Mode: 0o751, Content: []byte("new")}, {Path: "/d/l", Symlink: "../f"}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "d/l"))
	if err != nil || string(got) != "new" {
		t.Errorf("through the link: %q, %v", got, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "f")); err != nil || info.Mode() != 0o751 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if kept, _ := os.ReadFile(object); !bytes.Equal(kept, []byte("keep")) {
		t.Errorf("the file it was linked to is now %q", kept)
	}
}
