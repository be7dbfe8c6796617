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

	"golang.org/x/sys/unix"

	"machine-pivot/internal/fault"
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

// TestPartitionFilesOnly: what is no file is refused by its name, without waiting for it. A link to the null device is
// an empty file, and a link is followed below the root directory.
func TestPartitionFilesOnly(t *testing.T) {
	const name = pinning.DropInDir + "/10.conf"
	for what, c := range map[string]struct {
		make func(path string) error
		want string // the content; or
		why  string
	}{
		"a pipe": {make: func(path string) error { return unix.Mkfifo(path, 0o644) }, why: "cannot read " + name + ": it is not a regular file"},
		"a link to one": {make: func(path string) error {
			return errors.Join(unix.Mkfifo(path+"x", 0o644), os.Symlink(filepath.Base(path)+"x", path))
		}, why: "it is not a regular file"},
		"a socket":        {make: func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o644, 0) }, why: "it is not a regular file"},
		"the null device": {make: func(path string) error { return os.Symlink(os.DevNull, path) }},
		"a link":          {make: func(path string) error { return os.Symlink(pinning.KubeletPath, path) }, want: "kubelet's"},
	} {
		t.Run(what, func(t *testing.T) {
			h := machine(t, map[string]string{pinning.DropInDir + "/": "", pinning.KubeletPath: "kubelet's"})
			if err := c.make(h.Path(name)); err != nil {
				t.Fatal(err)
			}
			files, err := h.PartitionFiles()
			if c.why != "" {
				if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), c.why) || fault.HintOf(err) == "" {
					t.Errorf("error %v", err)
				}
				return
			}
			if text, ok := files[name]; err != nil || !ok || string(text) != c.want {
				t.Errorf("%q, %v, %v", text, ok, err)
			}
		})
	}
}
