package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"machine-pivot/day2"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/osimage"
	"machine-pivot/pivot"
	"machine-pivot/rpmostree"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/tools/script"
	"machine-pivot/test/worlds/hostdir"
)

// TestRepairOfLargeFiles: a repair keeps what it replaces, within a limit that is counted while it reads. Sparse files
// of 1.4 GB in a directory, each small enough, take no more memory, nor do the MachineConfig's own.
func TestRepairOfLargeFiles(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 2 GB of sparse files")
	}
	need.Ostree(t)
	h := hostdir.New(t)
	applied(t, h, script.Expanding(t, "conf", 40, 10))
	h.Boot()
	inPlace := func(n int) string { return filepath.Join(h.Root, fmt.Sprintf("etc/conf/%d", n)) }
	// A directory in place of a file.
	if err := errors.Join(os.Remove(inPlace(0)), os.Mkdir(inPlace(0), 0o755)); err != nil {
		t.Fatal(err)
	}
	for n := range 90 {
		sparse(t, filepath.Join(inPlace(0), fmt.Sprint(n)), 16<<20)
	}
	script.Bounded(t, 65, "more than 67108864 bytes of files in total", "pivot", "apply", "--root", h.Root, "--repair", "--reboot=later")
	// As many names as a directory takes.
	if err := errors.Join(os.RemoveAll(inPlace(0)), os.Mkdir(inPlace(0), 0o755)); err != nil {
		t.Fatal(err)
	}
	for n := range 20_000 {
		if err := os.Mkdir(filepath.Join(inPlace(0), fmt.Sprint(n)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script.Bounded(t, 65, "more than 10000 entries in total", "pivot", "apply", "--root", h.Root, "--repair", "--reboot=later")
	if err := os.RemoveAll(inPlace(0)); err != nil {
		t.Fatal(err)
	}
	// Large files in place of all files.
	for n := range 40 {
		sparse(t, inPlace(n), 16<<20)
	}
	script.Bounded(t, 65, "more than 67108864 bytes of files in total", "pivot", "apply", "--root", h.Root, "--repair", "--reboot=later")
	script.Bounded(t, 65, "differs", "pivot", "verify", "--root", h.Root)
	for n := range 40 {
		if err := os.WriteFile(inPlace(n), make([]byte, 10), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// One that is too large to be kept at all.
	sparse(t, inPlace(7), 1<<30)
	script.Bounded(t, 65, "/etc/conf/7: it is too large to compare", "pivot", "apply", "--root", h.Root, "--repair", "--reboot=later")
	if _, err := os.Stat(filepath.Join(h.Root, "var/lib/pivot/found")); err == nil {
		t.Error("something was kept, and nothing was repaired")
	}
}

// applied applies a MachineConfig to a host.
func applied(t *testing.T, h *hostdir.Host, config string) {
	t.Helper()
	data, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	apply := day2.Apply{Config: day2.Config{File: config, Data: data}, When: day2.RebootLater, Machine: &machine.Machine{
		Host: h.Host, Puller: &osimage.Puller{Root: h.Root}, Engine: &rpmostree.Ostree{Sysroot: h.Sysroot(), Run: h.Run},
		Progress: &pivot.Progress{Journal: pivot.JournalIn(h.Root), Now: time.Now, Emit: func(pivot.Event) {}},
	}}
	if _, err := apply.Run(t.Context(), day2.RunOptions{}); err != nil {
		t.Fatal(err)
	}
}

func sparse(t *testing.T, name string, size int64) {
	t.Helper()
	if err := errors.Join(os.WriteFile(name, nil, 0o644), os.Truncate(name, size)); err != nil {
		t.Fatal(err)
	}
}
