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

// maxSizes are the maximum sizes of the programs, in bytes. That of the host is in initramfs images and in
// Ignition configs; most of it is needed to read images: TLS, registries and signatures. The authors' program
// has all versions of Ignition in addition. Those of a cluster are images: the agent has a client of the API
// server, the controllers have all types of Kubernetes, and read registries.
var maxSizes = map[string]int64{
	"pivot":       17<<20 + 768<<10, // a struct type that slices.SortFunc sorts is 25 kB
	"pivotctl":    19<<20 + 384<<10,
	"pivot-agent": 25 << 20,
	"pivot-fleet": 54<<20 + 640<<10,
}

// TestBinary checks the sizes of the programs, and that they are static and say what they were built from.
func TestBinary(t *testing.T) {
	if testing.Short() {
		t.Skip("builds all programs")
	}
	dir := t.TempDir()
	run(t, "make", "-s", "build", "BIN="+dir)
	head, err := exec.Command("git", "-C", root, "rev-parse", "HEAD").Output()
	for _, program := range programs(t) {
		path := filepath.Join(dir, program)
		checkSize(t, path, maxSizes[program])
		checkStatic(t, path)
		if err != nil {
			continue // no checkout of git
		}
		if said := run(t, path, "version"); !strings.Contains(said, "\ncommit   "+string(head)) {
			t.Errorf("%s does not say that it is of commit %s: %s", program, head, said)
		}
	}
}

// programs returns the names of the programs.
func programs(t *testing.T) (names []string) {
	t.Helper()
	dirs, err := os.ReadDir(filepath.Join(root, "cmd"))
	if err != nil || len(dirs) == 0 {
		t.Fatal("there are no programs", err)
	}
	for _, dir := range dirs {
		names = append(names, dir.Name())
	}
	return names
}

func checkSize(t *testing.T, path string, most int64) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %.1f MiB", info.Name(), float64(info.Size())/(1<<20))
	if info.Size() > most {
		t.Errorf("%s has %d bytes, more than %d: what came in? (go version -m, go tool nm -size)", info.Name(), info.Size(), most)
	}
}

func checkStatic(t *testing.T, path string) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Errorf("%s wants a dynamic loader: it must be static", path)
		}
	}
}

// TestHostProgram checks that the host's program does not depend on packages that only write and serve MachineConfigs,
// nor on those that prevent the linker's dead code elimination (docs/dev/dependencies.md).
func TestHostProgram(t *testing.T) {
	deps := strings.Fields(run(t, "go", "list", "-deps", "./cmd/pivot"))
	authors := append(slices.Clone(oldIgnition), "go.yaml.in/yaml/v2", "k8s.io", module+"/internal/author", module+"/internal/cluster", "google.golang.org/protobuf", "go.podman.io/storage/pkg/chunked")
	for _, dep := range deps {
		if within(dep, authors) {
			t.Errorf("it has package %s", dep)
		}
	}
	if !slices.Contains(deps, module+"/internal/machineconfig") {
		t.Errorf("go list tells of %d packages, not of what the host reads", len(deps))
	}
}
