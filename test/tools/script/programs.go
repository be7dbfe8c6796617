package script

import (
	"os"
	"os/exec"
	"path/filepath"
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
	for _, name := range []string{"pivot", "pivotctl", "pivot-agent"} {
		Build(t, filepath.Join(dir, name), "machine-pivot/cmd/"+name)
	}
	return dir
}

// Build builds a static program and puts it into a file. flags are those of go build. Go links what "go run" runs only once,
// where "go build" would link it for each test, which takes ten times as much processor time.
func Build(t testing.TB, file, pkg string, flags ...string) {
	t.Helper()
	argv := append([]string{"run", "-exec", "install -m 755 -T"}, flags...)
	cmd := exec.CommandContext(t.Context(), "go", append(argv, pkg, file)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cannot build %s: %v\n%s", pkg, err, out)
	}
}
