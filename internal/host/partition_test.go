package host_test

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/host"
	"machine-pivot/internal/pinning"
)

func machine(t *testing.T, files map[string]string) *host.Host {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		name := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(root+path), 0o755); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(path, "/") {
			continue // a directory
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return host.New(root)
}

func TestCPUs(t *testing.T) {
	const cpu = "/sys/devices/system/cpu/"
	m, err := machine(t, map[string]string{
		cpu + "present": "0-4\n", cpu + "online": "0-3\n",
		cpu + "cpu0/topology/thread_siblings_list": "0,2\n", cpu + "cpu2/topology/thread_siblings_list": "0,2\n",
		cpu + "cpu1/topology/thread_siblings_list": "1,3\n", cpu + "cpu3/topology/thread_siblings_list": "1,3\n",
	}).CPUs()
	if err != nil {
		t.Fatal(err)
	}
	if m.Present.String() != "0-4" || m.Online.String() != "0-3" || len(m.Cores) != 2 || m.Cores[0].String() != "0,2" || m.Cores[1].String() != "1,3" {
		t.Errorf("machine %+v", m)
	}
}

func TestCPUsWithoutTopology(t *testing.T) {
	m, err := machine(t, map[string]string{"/sys/devices/system/cpu/present": "0-1\n"}).CPUs()
	if err != nil || m.Online.String() != "0-1" || len(m.Cores) != 0 {
		t.Errorf("machine %+v, %v", m, err)
	}
	if _, err := machine(t, nil).CPUs(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without sysfs: %v", err)
	}
	if _, err := machine(t, map[string]string{"/sys/devices/system/cpu/present": "zero\n"}).CPUs(); err == nil {
		t.Error("a broken file is no error")
	}
}

// TestPartitionFiles: CRI-O reads its directory recursively, with any file names.
func TestPartitionFiles(t *testing.T) {
	files := map[string]string{
		pinning.ConfigPath: "a", pinning.DropInDir + "/00-default": "b", pinning.DropInDir + "/x/y.conf": "c",
		pinning.DropInDir + "/.left": "d", pinning.KubeletPath: "e", pinning.ManagerStatePath: "f",
	}
	got, err := machine(t, files).PartitionFiles()
	if err != nil {
		t.Fatal(err)
	}
	if want := slices.Sorted(maps.Keys(files)); !slices.Equal(slices.Sorted(maps.Keys(got)), want) {
		t.Errorf("files %q, want %q", slices.Sorted(maps.Keys(got)), want)
	}
	for path, text := range files {
		if string(got[path]) != text {
			t.Errorf("%s holds %q", path, got[path])
		}
	}
	if got, err := machine(t, nil).PartitionFiles(); err != nil || len(got) != 0 {
		t.Errorf("an empty host: %q, %v", got, err)
	}
}
