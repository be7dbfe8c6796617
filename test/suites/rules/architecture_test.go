package rules

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
)

// TestArchitecturesWhole vets all packages, with their tests, for all architectures of image-based hosts: the types of
// system calls differ between them. It is part of "make nightly".
func TestArchitecturesWhole(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles everything for other architectures")
	}
	for _, arch := range []string{"amd64", "arm64", "ppc64le", "s390x"} {
		if arch != runtime.GOARCH { // covered by make check
			t.Run(arch, func(t *testing.T) { vets(t, arch) })
		}
	}
}

func vets(t *testing.T, arch string) {
	t.Helper()
	cmd := exec.Command("go", "vet", "./...")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "GOARCH="+arch)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("GOARCH=%s go vet ./...: %v\n%s", arch, err, out)
	}
}
