package hostfiles_test

import (
	"path/filepath"
	"slices"
	"testing"

	"machine-pivot/internal/hostfiles"
)

// killed is a Disk that panics at a given sync and records which paths were synced.
type killed struct {
	hostfiles.OS
	at     int
	synced []string
}

func (k *killed) Sync(path string) error {
	if k.at--; k.at == 0 {
		panic(k)
	}
	k.synced = append(k.synced, path)
	return k.OS.Sync(path)
}

// TestKeepAfterAKill: Keep makes the name of a content durable that an earlier run has
// renamed into place, because that may have been killed before its sync.
func TestKeepAfterAKill(t *testing.T) {
	for kill := 1; ; kill++ {
		dir := filepath.Join(t.TempDir(), "pivot", "contents")
		keep := func(disk hostfiles.Disk) error {
			return hostfiles.Contents{Dir: dir, Disk: disk}.Keep([]byte("content"))
		}
		first := &killed{at: kill}
		if !dies(func() { _ = keep(first) }) {
			if kill < 4 {
				t.Errorf("killed at %d syncs only", kill-1)
			}
			return
		}
		second := &killed{}
		if err := keep(second); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(second.synced, dir) {
			t.Errorf("killed at sync %d: the second run synced only %q", kill, second.synced)
		}
	}
}

// dies reports whether a killed disk ends the work.
func dies(work func()) (dead bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, expected := r.(*killed); !expected {
				panic(r)
			}
			dead = true
		}
	}()
	work()
	return false
}

// TestMakeDirAfterAKill: MakeDir makes the name of an existing directory durable, because the
// process that created it may have been killed before its sync.
func TestMakeDirAfterAKill(t *testing.T) {
	for kill := 1; kill <= 3; kill++ {
		dir := t.TempDir()
		makes := func(disk hostfiles.Disk) error { return hostfiles.MakeDir(disk, filepath.Join(dir, "a", "b"), 0o755) }
		first := &killed{at: kill}
		func() {
			defer func() {
				if recover() != any(first) {
					t.Errorf("it was not killed at sync %d", kill)
				}
			}()
			_ = makes(first)
		}()
		second := &killed{}
		if err := makes(second); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{dir, filepath.Join(dir, "a")} { // the directories with a new name
			if !slices.Contains(first.synced, name) && !slices.Contains(second.synced, name) {
				t.Errorf("killed at sync %d: nobody synced %s, but %q and then %q", kill, name, first.synced, second.synced)
			}
		}
	}
}
