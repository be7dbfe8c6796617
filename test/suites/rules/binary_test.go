package rules

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// maxSize is the maximum size of the host's binary, which is in initramfs images and in Ignition
// configs. Most of it is needed to read images: TLS, registries and signatures.
const maxSize = 68 << 18 // 17 MiB

func TestBinary(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the whole binary")
	}
	dir := t.TempDir()
	run(t, "make", "-s", "build", "BIN="+dir)
	path := filepath.Join(dir, "pivot")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.1f MiB", float64(info.Size())/(1<<20))
	if info.Size() > maxSize {
		t.Errorf("the binary has %d bytes, more than %d: what came in? (go version -m, go tool nm -size)", info.Size(), maxSize)
	}
	if head, err := exec.Command("git", "-C", root, "rev-parse", "HEAD").Output(); err == nil {
		if said := run(t, path, "version"); !strings.Contains(said, "\ncommit   "+string(head)) {
			t.Errorf("it does not say that it is of commit %s: %s", head, said)
		}
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the binary wants a dynamic loader: it must be static")
		}
	}
}

// TestHostProgram checks that the host's program does not depend on packages that are only needed to
// write and serve MachineConfigs, nor on those that prevent the linker's dead code elimination: see
// docs/dependencies.md.
func TestHostProgram(t *testing.T) {
	deps := strings.Fields(run(t, "go", "list", "-deps", "./cmd/pivot"))
	authors := append(slices.Clone(oldIgnition), "go.yaml.in/yaml/v2", "k8s.io", module+"/internal/author", module+"/internal/cluster", "google.golang.org/protobuf")
	for _, dep := range deps {
		if within(dep, authors) {
			t.Errorf("it has package %s", dep)
		}
	}
	if !slices.Contains(deps, module+"/internal/mcfile") {
		t.Errorf("go list tells of %d packages, not of what the host reads", len(deps))
	}
}
