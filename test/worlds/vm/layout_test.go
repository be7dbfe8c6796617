package vm

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/test/tools/need"
)

// layouts returns all layouts.
func layouts() []Layout {
	return []Layout{{}, {SeparateBoot: true}, {Root: XFS}, {Root: XFS, SeparateBoot: true}}
}

// TestLayouts makes a disk of each layout, reads it, cuts the power while the kernel has it mounted
// for writing, and damages it.
func TestLayouts(t *testing.T) {
	if testing.Short() {
		t.Skip("makes disks; not in a short run")
	}
	if missing := lacking("mkfs.ext4", "e2fsck"); len(missing) > 0 {
		need.Lacking(t, "cannot make disks here: lacking "+strings.Join(missing, ", "))
	}
	for _, l := range layouts() {
		t.Run(l.String(), func(t *testing.T) {
			if missing := l.Missing(); len(missing) > 0 {
				need.Lacking(t, "cannot make such disks here: lacking "+strings.Join(missing, ", "))
			}
			m := &Machine{Disk: filepath.Join(t.TempDir(), "disk")}
			sysroot := sampleSysroot(t)
			if err := l.makeDisk(t.Context(), m.Disk, sysroot, 320); err != nil {
				t.Fatal(err)
			}
			checkSample(t, m)
			cutPower(t, m)
			checkSample(t, m)
			for _, path := range []string{"/late/file", "/boot/late/file"} {
				if got, err := m.ReadFile(path); err != nil || string(got) != "synced\n" {
					t.Errorf("%s holds %q, %v after a power cut", path, got, err)
				}
			}
			damage(t, m, l)
			if _, err := m.Inspect(t.Context()); err == nil {
				t.Error("a damaged file system is called clean")
			}
		})
	}
}

// sampleSysroot makes a sysroot with the files that the boot loader and Inspect read.
func sampleSysroot(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	link := "../../../deploy/guest/deploy/" + strings.Repeat("0123456789abcdef", 4) + ".0" // too long for an inode of ext4
	err := writeTree(dir, []TreeFile{
		{Path: "/boot/boot", Symlink: "."},
		{Path: "/boot/loader", Symlink: "loader.1"},
		{Path: "/boot/loader.1/entries/ostree-1.conf", Mode: 0o644, Content: []byte("title T\nversion 1\noptions root=LABEL=root ostree=/ostree/boot.1/guest/sum/0\nlinux /ostree/k\ninitrd /ostree/i\n")},
		{Path: "/boot/ostree/k", Mode: 0o644, Content: []byte("kernel")},
		{Path: "/boot/ostree/i", Mode: 0o600, Content: []byte("initramfs")},
		{Path: "/ostree/boot.1", Symlink: "boot.1.0"},
		{Path: "/outside", Symlink: "/etc/passwd"},
		{Path: "/ostree/boot.1.0/guest/sum/0", Symlink: link},
		{Path: "/ostree/deploy/guest/deploy/" + filepath.Base(link) + "/etc/a b", Mode: 0o640, Content: []byte("text\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// cutPower writes to the disk's file systems, syncs, and leaves them as they are before the
// unmount: the new data may be in a journal only.
func cutPower(t *testing.T, m *Machine) {
	t.Helper()
	parts, err := fileSystemsOn(t.Context(), m.Disk)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		script := `for dir in "$1" "$1"/boot; do mkdir -p "$dir/late"; echo synced >"$dir/late/file"; sync -f "$dir/late"; done
			cp --sparse=always "$2" "$2.cut"`
		if _, err := mounted(t.Context(), m.Disk, p, script, m.Disk); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(m.Disk+".cut", m.Disk); err != nil {
			t.Fatal(err)
		}
	}
}

func checkSample(t *testing.T, m *Machine) {
	t.Helper()
	s, err := m.Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	deployments, err := m.Deployments()
	if err != nil || len(deployments) != 1 || deployments[0] != s.Deployment || len(s.Entries) != 1 {
		t.Errorf("state %+v, deployments %v, %v", s, deployments, err)
	}
	if got, err := m.ReadFile(s.Deployment + "/etc/a b"); err != nil || string(got) != "text\n" {
		t.Errorf("a file holds %q, %v", got, err)
	}
	if got, err := m.ReadFile("/boot/ostree/k"); err != nil || string(got) != "kernel" {
		t.Errorf("the kernel is %q, %v", got, err)
	}
	for _, path := range []string{"/nothing", "/boot/nothing", "/outside"} {
		if _, err := m.ReadFile(path); err == nil {
			t.Errorf("%s, which is not on the disk, can be read", path)
		}
	}
}

// damage overwrites a part of the first partition's file system that holds metadata such as inodes.
func damage(t *testing.T, m *Machine, l Layout) {
	t.Helper()
	parts, err := fileSystemsOn(t.Context(), m.Disk)
	if err != nil || len(parts) != len(l.partitions(320)) {
		t.Fatalf("partitions %v, %v", parts, err)
	}
	disk, err := os.OpenFile(m.Disk, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	// The superblock, in the first bytes of both file systems, stays intact.
	junk := make([]byte, 512<<10)
	for i := range junk {
		junk[i] = byte(i)
	}
	_, err = disk.WriteAt(junk, parts[0].offset+4096)
	if err = errors.Join(err, disk.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestEmptyDisk(t *testing.T) {
	m := &Machine{Disk: filepath.Join(t.TempDir(), "disk")}
	if err := blank(m.Disk, 1<<20); err != nil {
		t.Fatal(err)
	}
	if _, err := m.BootEntries(t.Context()); err == nil {
		t.Errorf("an empty disk: %v", err)
	}
}
