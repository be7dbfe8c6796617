package vm

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Layout describes the file systems of a disk. Their labels are "root" and "boot".
type Layout struct {
	Root         FileSystem // "": Ext4
	SeparateBoot bool       // /boot is a separate file system, mounted by /etc/fstab
	Boot         FileSystem // of /boot; "": Ext4
	OldXFS       bool       // XFS is of version 4; few hosts read that
	// BootUUID is that of /boot (Ext4), which then has no label, and is not in /etc/fstab: something else mounts it.
	BootUUID string
	// Verity lets files on the root file system (Ext4) have fs-verity. Then the kernels must be on a
	// separate /boot: a host without fs-verity in its kernel cannot read a file that has it.
	Verity bool
	// On is what the root file system is on; "": its partition.
	On Carrier
	// ESP is whether there is an EFI system partition, which InstallESP fills, with a separate /boot.
	ESP bool
}

// FileSystem is a kind of file system.
type FileSystem string

// The supported file systems.
const (
	Ext4  FileSystem = "ext4"
	XFS   FileSystem = "xfs"
	Btrfs FileSystem = "btrfs" // of the root; nothing checks it
)

// String returns a short description of the layout.
func (l Layout) String() string {
	root := Ext4
	if l.Root != "" {
		root = l.Root
	}
	if l.SeparateBoot && l.Boot == XFS {
		return "separate xfs boot, " + string(root) + " root"
	}
	if l.SeparateBoot {
		return "separate boot, " + string(root) + " root"
	}
	return string(root) + " root"
}

// Names of partitions, which are also the labels of their file systems.
const (
	rootPartition = "root"
	bootPartition = "boot"
	espPartition  = "esp"
)

// espSizeMiB is enough for two boot loaders, while one replaces the other.
const espSizeMiB = 64

// bootSizeMiB is enough for three kernels, each with its initramfs.
const bootSizeMiB = 384

// Missing returns what this host lacks to make and read disks of the layout; nothing if it can.
func (l Layout) Missing() []string {
	missing := lackingToMount()
	if l.SeparateBoot {
		missing = append(missing, lacking("sfdisk")...)
	}
	if l.ESP {
		missing = append(missing, lacking("mkfs.vfat", "mcopy")...)
	}
	if l.Root == XFS || l.Boot == XFS {
		missing = append(missing, lacking("mkfs.xfs", "xfs_repair", "findmnt")...)
		if !kernelHas(XFS) {
			missing = append(missing, "xfs in this kernel")
		}
	}
	if l.Root == Btrfs {
		missing = append(missing, lacking("mkfs.btrfs")...)
		if !kernelHas(Btrfs) {
			missing = append(missing, "btrfs in this kernel")
		}
	}
	return missing
}

// kernelHas reports whether this host's kernel supports a file system or can load its module.
func kernelHas(kind FileSystem) bool {
	known, err := os.ReadFile("/proc/filesystems")
	if err == nil && slices.Contains(strings.Fields(string(known)), string(kind)) {
		return true
	}
	return exec.Command("modprobe", "--dry-run", string(kind)).Run() == nil
}

// partitions returns the partitions of a disk of the layout.
func (l Layout) partitions(rootMiB int) []partition {
	root := partition{name: rootPartition, size: int64(rootMiB) << 20}
	boot := partition{name: bootPartition, size: bootSizeMiB << 20}
	if l.ESP {
		return []partition{{name: espPartition, size: espSizeMiB << 20}, boot, root}
	}
	if l.SeparateBoot {
		return []partition{boot, root}
	}
	return []partition{root}
}

// files returns the files that the layout needs on the disk.
func (l Layout) files() []TreeFile {
	if !l.SeparateBoot || l.BootUUID != "" {
		return nil
	}
	// Otherwise systemd gives the device and the mount 90 seconds each, by the clock, which are not enough on a
	// very busy host.
	line := fmt.Sprintf("LABEL=boot /boot %s defaults,x-systemd.device-timeout=15min,x-systemd.mount-timeout=15min 0 0\n", cmp.Or(l.Boot, Ext4))
	return []TreeFile{{Path: "/etc/fstab", Mode: 0o644, Content: []byte(line)}}
}

// makeDisk makes a disk of the layout with the contents of sysroot. With a separate /boot, it
// moves the contents of the boot directory there and empties that directory in sysroot.
func (l Layout) makeDisk(ctx context.Context, dst, sysroot string, rootMiB int) error {
	parts, err := partitioned(ctx, dst, l.partitions(rootMiB))
	if err != nil {
		return err
	}
	boot := filepath.Join(sysroot, "boot")
	for _, p := range parts { // the root last
		if p.name == espPartition {
			continue
		}
		if p.name == bootPartition {
			if err := l.makeBoot(ctx, dst, p, boot); err != nil {
				return err
			}
			if err := emptyDir(boot); err != nil {
				return err
			}
			continue
		}
		if err := l.makeRoot(ctx, dst, p, sysroot); err != nil {
			return err
		}
	}
	return nil
}

// makeBoot makes the file system of /boot in a partition, with the contents of dir.
func (l Layout) makeBoot(ctx context.Context, disk string, p partition, dir string) error {
	if l.BootUUID != "" {
		return makeExt4(ctx, disk, p, dir, "-U", l.BootUUID, "-L", "") // the last label counts
	}
	return l.makeFileSystem(ctx, l.Boot, disk, p, dir)
}

// makeRoot makes the root file system in a partition, with the contents of sysroot.
func (l Layout) makeRoot(ctx context.Context, disk string, whole partition, sysroot string) error {
	p, err := l.On.before(ctx, disk, whole, sysroot)
	switch {
	case err != nil:
		return err
	case l.Verity:
		return makeExt4(ctx, disk, p, sysroot, "-O", "verity")
	}
	if err := l.makeFileSystem(ctx, l.Root, disk, p, sysroot); err != nil {
		return err
	}
	return l.On.after(ctx, disk, whole, sysroot)
}

// makeFileSystem makes a file system of a kind in a partition, with the contents of dir.
func (l Layout) makeFileSystem(ctx context.Context, kind FileSystem, disk string, p partition, dir string) error {
	if kind == XFS && l.OldXFS {
		return makeOldXFS(ctx, disk, p, dir)
	}
	if kind == XFS || kind == Btrfs {
		return makeMounted(ctx, kind, disk, p, dir)
	}
	return makeExt4(ctx, disk, p, dir)
}

// MakeXFS makes a file with an XFS file system that has the contents of a directory. Machine.Open reads it.
func MakeXFS(ctx context.Context, file, contents string, sizeMiB int) error {
	return Layout{Root: XFS}.makeDisk(ctx, file, contents, sizeMiB)
}

// emptyDir replaces a directory with an empty one.
func emptyDir(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("cannot make disk: %w", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("cannot make disk: %w", err)
	}
	return nil
}
