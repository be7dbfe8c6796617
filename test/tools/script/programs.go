package script

import (
	"path/filepath"
	"testing"

	"machine-pivot/test/tools/buildcache"
)

// Programs builds the three programs and returns the directory with them. It
// skips short tests.
func Programs(t *testing.T) (dir string) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the programs")
	}
	dir = t.TempDir()
	for _, name := range []string{"pivot", "pivotctl", "pivot-agent"} {
		Build(t, filepath.Join(dir, name), "machine-pivot/cmd/"+name)
	}
	return dir
}

// Build is buildcache.Program for a test.
func Build(t testing.TB, file, pkg string, flags ...string) {
	t.Helper()
	if err := buildcache.Program(t.Context(), file, pkg, flags...); err != nil {
		t.Fatal(err)
	}
}
