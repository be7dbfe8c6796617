package buildcache_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"machine-pivot/test/tools/buildcache"
)

func TestCacheEntry(t *testing.T) {
	c := buildcache.Cache{Dir: t.TempDir(), Log: t.Output()}
	builds := 0
	build := func(fail error) func(string) error {
		return func(dir string) error {
			builds++
			return errors.Join(os.WriteFile(filepath.Join(dir, "f"), nil, 0o644), fail)
		}
	}
	if _, err := c.Entry("a", "a", build(errors.New("half"))); err == nil {
		t.Error("a failed build is no error")
	}
	if left, err := os.ReadDir(c.Dir); err != nil || len(left) != 0 {
		t.Errorf("a failed build left %v, %v", left, err)
	}
	for range 2 {
		dir, err := c.Entry("a", "a", build(nil))
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
	c := buildcache.Cache{Dir: t.TempDir(), Log: t.Output()}
	now := time.Now()
	for i, name := range []string{"x-new", "x-used", "x-old.part", "y-old"} {
		dir, used := filepath.Join(c.Dir, name), now.Add(-time.Duration(i)*time.Hour)
		if err := errors.Join(os.Mkdir(dir, 0o755), os.Chtimes(dir, used, used)); err != nil {
			t.Fatal(err)
		}
	}
	removed, err := c.Prune("x-", 2)
	if err != nil || len(removed) != 1 || removed[0] != "x-old.part" {
		t.Errorf("removed %v, %v", removed, err)
	}
	if left, _ := os.ReadDir(c.Dir); len(left) != 3 {
		t.Errorf("left are %v", left)
	}
}

func TestLock(t *testing.T) {
	c := buildcache.Cache{Dir: t.TempDir(), Log: t.Output()}
	unlock, err := c.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Lock(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second lock: %v", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if unlock, err = c.Lock(t.Context()); err != nil || unlock() != nil {
		t.Errorf("a lock that is free: %v", err)
	}
}
