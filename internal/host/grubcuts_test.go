package host_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
	"machine-pivot/test/tools/need"
)

// TestOneShotCuts (P59) cuts the power before and after each change on the disk while an entry is set to start once,
// and while that ends. Then it reads the disk with GRUB's own drivers of file systems (grub-fstest), which read no
// journal. GRUB sees the administrator's file with the whole hook or without, and a name only with a block that it can
// write to. Where GRUB cannot write at all, nothing is written.
func TestOneShotCuts(t *testing.T) {
	if testing.Short() {
		t.Skip("makes file systems; not in a short run")
	}
	need.Root(t)
	need.Program(t, "grub-fstest")
	need.File(t, "/dev/loop-control")
	for _, kind := range []string{"ext4", "xfs"} {
		t.Run(kind, func(t *testing.T) {
			b := newBootDisk(t, kind)
			d := ostree.Deployment{Entry: ostree.BootEntry{File: "ostree-2.conf"}}
			before := b.seen()
			if err := b.BootOnce(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			b.whole = b.seen()
			if once := b.whole.once; before.hook != "" || b.whole.hook == "" || once != "ostree-2" {
				t.Fatalf("GRUB sees %+v, then %+v", before, b.whole)
			}
			if err := b.EndOnce(t.Context()); err != nil {
				t.Fatal(err)
			}
			if after := b.seen(); after != before {
				t.Errorf("afterwards, GRUB sees %+v", after)
			}
			if named := b.check(); len(b.cuts) < 20 || named == 0 {
				t.Errorf("%d power cuts, %d of them with a name", len(b.cuts), named)
			}
		})
	}
	t.Run("btrfs", func(t *testing.T) {
		b := newBootDisk(t, "btrfs")
		if _, err := b.OneShot(); err == nil || !strings.Contains(err.Error(), "GRUB cannot write to the file system") {
			t.Errorf("error %v", err)
		}
		if err := b.BootOnce(t.Context(), ostree.Deployment{}); err == nil || len(b.cuts) > 0 {
			t.Errorf("error %v, %d changes", err, len(b.cuts))
		}
	})
}

// bootDisk is a machine with a file system in a file as its /boot.
type bootDisk struct {
	*host.Host
	t     *testing.T
	image string
	cuts  []grubView // what GRUB sees after a power cut at each point
	whole grubView   // what it sees when an entry is to be started once
}

// grubView is what GRUB sees of the hook.
type grubView struct {
	hook     string // what custom.cfg has after the administrator's lines
	once     string // the entry that the block names
	block    string // "", or what is wrong with it
	writable bool   // GRUB knows the block's place on the disk
}

const adminsCustom = "set timeout=7 # the administrator's, without a newline"

// newBootDisk makes the file system, with a static configuration of GRUB on it, and mounts it.
func newBootDisk(t *testing.T, kind string) *bootDisk {
	t.Helper()
	need.Program(t, "mkfs."+kind)
	dir := t.TempDir()
	b := &bootDisk{host.New(filepath.Join(dir, "root")), t, filepath.Join(dir, "boot.img"), nil, grubView{}}
	boot := b.Path("/boot")
	err := errors.Join(os.MkdirAll(boot, 0o755), os.WriteFile(b.image, nil, 0o600), os.Truncate(b.image, 320<<20))
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs."+kind, "-q", b.image).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command("mount", "-o", "loop", b.image, boot).CombinedOutput(); err != nil {
		need.Lacking(t, "cannot mount "+kind+" here: "+string(out))
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", boot).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	for name, text := range map[string]string{"grub.cfg": grubStatic, "custom.cfg": adminsCustom} {
		path := filepath.Join(boot, "grub2", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("sh", "-ec", "sync; fsfreeze -f "+boot+"; fsfreeze -u "+boot).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	b.Disk = cutDisk{hostfiles.OS{}, b.cut}
	b.Run = func(ctx context.Context, argv ...string) ([]byte, error) { // the freeze of /boot
		argv[len(argv)-1] = b.Path(argv[len(argv)-1])
		defer b.cut()
		return exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	}
	return b
}

func (b *bootDisk) cut() { b.cuts = append(b.cuts, b.seen()) }

// seen returns what GRUB sees if the power is cut now: the file that is the disk has no more than what the kernel
// has written to it.
func (b *bootDisk) seen() (v grubView) {
	b.t.Helper()
	disk := b.image + ".cut"
	if out, err := exec.Command("cp", "--sparse=always", b.image, disk).CombinedOutput(); err != nil {
		b.t.Fatalf("%v: %s", err, out)
	}
	grub := func(command, file string) (string, error) {
		out, err := exec.Command("grub-fstest", disk, command, "(loop0)/grub2/"+file).CombinedOutput()
		return string(out), err
	}
	custom, err := grub("cat", "custom.cfg")
	hook, found := strings.CutPrefix(custom, adminsCustom)
	if err != nil || !found {
		b.t.Errorf("GRUB sees %q in custom.cfg (%v)", custom, err)
	}
	v.hook = hook
	block, err := grub("cat", "pivot.env")
	if err != nil {
		if v.block = block; strings.Contains(block, "not found") {
			v.block = ""
		}
		return v
	}
	if len(block) != 1024 || !strings.HasPrefix(block, "# GRUB Environment Block\n") {
		v.block = block
	}
	for line := range strings.Lines(block) {
		if name, found := strings.CutPrefix(line, "pivot_once="); found {
			v.once = strings.TrimSpace(name)
		}
	}
	blocks, err := grub("blocklist", "pivot.env")
	v.writable = err == nil && strings.Contains(blocks, "+")
	return v
}

// check checks what GRUB sees after each power cut, and returns in how many cases an entry is named.
func (b *bootDisk) check() (named int) {
	b.t.Helper()
	for n, v := range b.cuts {
		switch {
		case v.hook != "" && v.hook != b.whole.hook:
			b.t.Errorf("power cut %d: GRUB sees a part of the hook: %q", n, v.hook)
		case v.hook != "" && v.block != "":
			b.t.Errorf("power cut %d: GRUB sees the hook, and its block is %q", n, v.block)
		case v.hook != "" && v.once != "" && (v.once != b.whole.once || !v.writable):
			b.t.Errorf("power cut %d: GRUB would start %q, and can clear that: %v", n, v.once, v.writable)
		case v.hook != "" && v.once != "":
			named++
		}
	}
	return named
}

// cutDisk calls cut before and after each change.
type cutDisk struct {
	hostfiles.Disk
	cut func()
}

func (d cutDisk) around(change func() error) error {
	d.cut()
	defer d.cut()
	return change()
}

func (d cutDisk) Write(path string, content []byte, mode fs.FileMode) error {
	return d.around(func() error { return d.Disk.Write(path, content, mode) })
}

func (d cutDisk) Overwrite(path string, content []byte) error {
	return d.around(func() error { return d.Disk.Overwrite(path, content) })
}

func (d cutDisk) Sync(path string) error { return d.around(func() error { return d.Disk.Sync(path) }) }

func (d cutDisk) SyncAll(path string) error {
	return d.around(func() error { return d.Disk.SyncAll(path) })
}

func (d cutDisk) Rename(from, to string) error {
	return d.around(func() error { return d.Disk.Rename(from, to) })
}

func (d cutDisk) Remove(path string) error {
	return d.around(func() error { return d.Disk.Remove(path) })
}
