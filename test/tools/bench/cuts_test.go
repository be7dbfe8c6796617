package main

import (
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/test/tools/need"
	"machine-pivot/test/tools/script"
	"machine-pivot/test/worlds/recorded"
)

// carelessScript imports with pivot into another repository, and copies from there without making anything but the
// ref durable. The file system's log, and with it the objects' names, then reach the disk before their contents do.
const carelessScript = `ostree init --repo=made --mode=bare
"$PIVOT" image import --root "$HOST" --authfile "$REGISTRY_AUTH_FILE" --repo made "docker://$TARGET"
ostree refs --repo=made --create=os "$COMMIT"
ostree pull-local --disable-fsync --repo=repo made os
exec sync repo/refs/heads/os`

// TestPowerCutsOfImports cuts the power in an import by pivot, which must leave no damage, and in a careless one; its
// damage must be found. It is part of "make nightly".
func TestPowerCutsOfImports(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the kernel to write by itself")
	}
	need.Ostree(t)
	if missing := recorded.Missing(); len(missing) > 0 {
		need.Lacking(t, "cannot record a disk here: lacking "+strings.Join(missing, ", "))
	}
	s := small(t)
	s.dir, s.only, s.cuts = t.TempDir(), basePart, 12
	w, err := newWorld(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.registry.Close(); err != nil {
			t.Error(err)
		}
	})
	chunked := w.images[chunkedImage]
	careless := &contender{name: "careless", steps: []step{{image: chunked, output: repoDir, phases: []phase{{"import", carelessScript}}}}}
	results, err := w.cutPower(t.Context(), []*contender{pivot(ours(chunked)), careless})
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := results[0], results[1]
	t.Logf("%+v", results)
	if ours.Tried != 12 || ours.Broken+ours.Partial+ours.Unreadable != 0 || ours.During != 6 || ours.Complete < 6 {
		t.Errorf("pivot: %+v", ours)
	}
	if theirs.Tried != 12 || theirs.Broken == 0 {
		t.Errorf("the careless import: %+v, want damage", theirs)
	}
}

// builtPivot builds the program and returns its path.
func builtPivot(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pivot")
	script.Build(t, file, "machine-pivot/cmd/pivot")
	return file
}
