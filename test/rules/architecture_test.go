package rules

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
)

// TestArchitectures compiles everything, tests too, for the architectures that
// image-based hosts have beside this one. Types of system calls differ between
// them. The first time takes minutes; Go's build cache has the rest from then on.
func TestArchitectures(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles everything for other architectures")
	}
	for _, arch := range []string{"amd64", "arm64", "ppc64le", "s390x"} {
		if arch == runtime.GOARCH {
			continue // make check
		}
		t.Run(arch, func(t *testing.T) {
			vet := exec.Command("go", "vet", "./...")
			vet.Dir, vet.Env = root, append(os.Environ(), "GOARCH="+arch)
			if out, err := vet.CombinedOutput(); err != nil {
				t.Errorf("GOARCH=%s go vet: %v\n%s", arch, err, out)
			}
		})
	}
}
