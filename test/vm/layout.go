package vm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Layout is which file systems a disk has. Their labels are "root" and "boot".
type Layout struct {
	Root         FileSystem // "": Ext4
	SeparateBoot bool       // /boot is a file system of its own (Ext4), mounted by /etc/fstab
}

// FileSystem is a kind of file system.
type FileSystem string

// The kinds that a disk may have as its root.
const (
	Ext4 FileSystem = "ext4"
	XFS  FileSystem = "xfs"
)

// String names the layout in a few words.
func (l Layout) String() string {
	root := Ext4
	if l.Root != "" {
		root = l.Root
	}
	if l.SeparateBoot {
		return "separate boot, " + string(root) + " root"
	}
	return string(root) + " root"
}

// Names of partitions, which are labels too.
const (
	rootPartition = "root"
	bootPartition = "boot"
)

// bootSizeMiB is room for two kernels, each with its initramfs, and one more.
const bootSizeMiB = 384

// Missing names what this machine lacks to make and read disks of the layout; none if it can.
func (l Layout) Missing() []string {
	missing := lackingToMount()
	if l.SeparateBoot {
		missing = append(missing, lacking("sfdisk")...)
	}
	if l.Root == XFS {
		missing = append(missing, lacking("mkfs.xfs", "xfs_repair", "findmnt")...)
		if !kernelHas(XFS) {
			missing = append(missing, "xfs in this kernel")
		}
	}
	return missing
}

// kernelHas reports whether this machine's kernel has a file system, or would
// load its module at the first mount.
func kernelHas(kind FileSystem) bool {
	known, err := os.ReadFile("/proc/filesystems")
	if err == nil && slices.Contains(strings.Fields(string(known)), string(kind)) {
		return true
	}
	return exec.Command("modprobe", "--dry-run", string(kind)).Run() == nil
}

// partitions are what a disk of the layout is divided into.
func (l Layout) partitions(rootMiB int) []partition {
	root := partition{name: rootPartition, size: int64(rootMiB) << 20}
	if l.SeparateBoot {
		return []partition{{name: bootPartition, size: bootSizeMiB << 20}, root}
	}
	return []partition{root}
}

// files are what the layout wants to be on the disk.
func (l Layout) files() []TreeFile {
	if !l.SeparateBoot {
		return nil
	}
	return []TreeFile{{Path: "/etc/fstab", Mode: 0o644, Content: []byte("LABEL=boot /boot ext4 defaults 0 0\n")}}
}

// makeDisk makes a disk of the layout from a directory with all that it holds,
// what is below boot among it.
func (l Layout) makeDisk(ctx context.Context, dst, sysroot string, rootMiB int) error {
	parts, err := partitioned(ctx, dst, l.partitions(rootMiB))
	if err != nil {
		return err
	}
	boot := filepath.Join(sysroot, "boot")
	for _, p := range parts { // the root last
		if p.name == bootPartition {
			if err := makeExt4(ctx, dst, p, boot); err != nil {
				return err
			}
			if err := emptied(boot); err != nil {
				return err
			}
			continue
		}
		format := makeExt4
		if l.Root == XFS {
			format = makeXFS
		}
		if err := format(ctx, dst, p, sysroot); err != nil {
			return err
		}
	}
	return nil
}

// emptied makes a directory an empty one.
func emptied(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("cannot make disk: %w", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("cannot make disk: %w", err)
	}
	return nil
}
