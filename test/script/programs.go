package script

import (
	"os/exec"
	"testing"
)

// Programs builds pivot and pivotctl as users have them, and returns the directory that
// holds them. Short tests build nothing: it skips them.
func Programs(t *testing.T) (dir string) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the programs")
	}
	dir = t.TempDir()
	if out, err := exec.Command("go", "build", "-o", dir, "machine-pivot/cmd/pivot", "machine-pivot/cmd/pivotctl").CombinedOutput(); err != nil {
		t.Fatalf("cannot build the programs: %v\n%s", err, out)
	}
	return dir
}
