package hostfiles_test

import (
	"path/filepath"
	"slices"
	"testing"

	"machine-pivot/internal/hostfiles"
)

// killed is a disk on which the process dies at a sync, and which knows what was synced.
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

// TestMakeDirAfterAKill: whoever needs a directory makes its name durable, though it is there:
// who made it may have been killed before that.
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
		for _, name := range []string{dir, filepath.Join(dir, "a")} { // those that a name was made in
			if !slices.Contains(first.synced, name) && !slices.Contains(second.synced, name) {
				t.Errorf("killed at sync %d: nobody synced %s, but %q and then %q", kill, name, first.synced, second.synced)
			}
		}
	}
}
