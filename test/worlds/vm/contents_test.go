package vm

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"machine-pivot/test/tools/need"
)

// TestCloseWhileInUse closes a disk while one of its files is still open, as is the case in a
// forked child until it calls exec. Close must wait instead of failing.
func TestCloseWhileInUse(t *testing.T) {
	if testing.Short() {
		t.Skip("makes a disk; not in a short run")
	}
	if missing := append(lacking("mkfs.ext4"), lackingToMount()...); len(missing) > 0 {
		need.Lacking(t, "cannot make disks here: lacking "+strings.Join(missing, ", "))
	}
	m := &Machine{Disk: filepath.Join(t.TempDir(), "disk")}
	if err := (Layout{}).makeDisk(t.Context(), m.Disk, sampleSysroot(t), 64); err != nil {
		t.Fatal(err)
	}
	disk, err := m.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	file, err := disk.root.Open("boot/ostree/k")
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan error)
	go func() { closed <- disk.Close() }()
	select {
	case err := <-closed:
		t.Fatalf("closed while a file is open: %v", err)
	case <-time.After(300 * time.Millisecond): // it has tried by now
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}
