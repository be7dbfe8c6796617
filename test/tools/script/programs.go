package script

import (
	"os/exec"
	"testing"
)

// Programs builds the three programs and returns the directory with them. It
// skips short tests.
func Programs(t *testing.T) (dir string) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the programs")
	}
	dir = t.TempDir()
	if out, err := exec.Command("go", "build", "-o", dir, "machine-pivot/cmd/pivot", "machine-pivot/cmd/pivotctl", "machine-pivot/cmd/pivot-agent").CombinedOutput(); err != nil {
		t.Fatalf("cannot build the programs: %v\n%s", err, out)
	}
	return dir
}
