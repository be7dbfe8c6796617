package rules

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// TestArchitectures compiles the program for the architecture that differs most from amd64. The types
// of system calls differ between the architectures of image-based hosts.
func TestArchitectures(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles everything for another architecture")
	}
	compilesFor(t, "s390x", "build", "-o", os.DevNull, "./cmd/pivot") // another byte order, and other widths in the kernel's structures
}

// TestArchitecturesWhole vets all packages, with their tests, for all architectures. It is part of
// "make nightly".
func TestArchitecturesWhole(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles everything for other architectures")
	}
	for _, arch := range []string{"amd64", "arm64", "ppc64le", "s390x"} {
		if arch != runtime.GOARCH { // covered by make check
			t.Run(arch, func(t *testing.T) { compilesFor(t, arch, "vet", "./...") })
		}
	}
}

func compilesFor(t *testing.T, arch string, args ...string) {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "GOARCH="+arch)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("GOARCH=%s go %s: %v\n%s", arch, strings.Join(args, " "), err, out)
	}
}
