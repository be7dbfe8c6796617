package vm

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"
)

func TestCacheEntry(t *testing.T) {
	c := cache{dir: t.TempDir(), log: t.Output()}
	builds := 0
	build := func(fail error) func(string) error {
		return func(dir string) error {
			builds++
			return errors.Join(os.WriteFile(filepath.Join(dir, "f"), nil, 0o644), fail)
		}
	}
	if _, err := c.entry("a", "a", build(errors.New("half"))); err == nil {
		t.Error("a failed build is no error")
	}
	if left, err := os.ReadDir(c.dir); err != nil || len(left) != 0 {
		t.Errorf("a failed build left %v, %v", left, err)
	}
	for range 2 {
		dir, err := c.entry("a", "a", build(nil))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "f")); err != nil {
			t.Error(err)
		}
	}
	if builds != 2 {
		t.Errorf("%d builds, want one that fails and one that serves twice", builds)
	}
}

func TestPrune(t *testing.T) {
	c := cache{dir: t.TempDir(), log: t.Output()}
	now := time.Now()
	for i, name := range []string{"x-new", "x-used", "x-old.part", "y-old"} {
		dir, used := filepath.Join(c.dir, name), now.Add(-time.Duration(i)*time.Hour)
		if err := errors.Join(os.Mkdir(dir, 0o755), os.Chtimes(dir, used, used)); err != nil {
			t.Fatal(err)
		}
	}
	removed, err := c.prune("x-", 2)
	if err != nil || len(removed) != 1 || removed[0] != "x-old.part" {
		t.Errorf("removed %v, %v", removed, err)
	}
	if left, _ := os.ReadDir(c.dir); len(left) != 3 {
		t.Errorf("left are %v", left)
	}
}

func TestLock(t *testing.T) {
	c := cache{dir: t.TempDir(), log: t.Output()}
	unlock, err := c.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second lock: %v", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if unlock, err = c.lock(t.Context()); err != nil || unlock() != nil {
		t.Errorf("a lock that is free: %v", err)
	}
}

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
