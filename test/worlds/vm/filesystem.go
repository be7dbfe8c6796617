package vm

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
)

// fileSystem is a file system on a powered-off machine's disk.
type fileSystem struct {
	kind FileSystem
	partition
}

// fileSystemsOn finds the root and /boot file systems on a disk, the root first.
func fileSystemsOn(ctx context.Context, disk string) ([]fileSystem, error) {
	info, err := os.Stat(disk)
	if err != nil {
		return nil, fmt.Errorf("cannot read disk: %w", err)
	}
	whole := partition{name: rootPartition, size: info.Size()}
	if kind, err := kindOf(disk, whole); err != nil || kind != "" {
		return []fileSystem{{kind, whole}}, err
	}
	parts, err := partitionsOf(ctx, disk)
	if err != nil {
		return nil, err
	}
	var all []fileSystem
	for _, p := range parts {
		p = carried(disk, p)
		kind, err := kindOf(disk, p)
		switch {
		case err != nil:
			return nil, err
		case p.name == espPartition:
		case kind == "":
			return nil, fmt.Errorf("cannot read disk %s: its partition %s holds no known file system", disk, p.name)
		case p.name == rootPartition:
			all = slices.Insert(all, 0, fileSystem{kind, p})
		case p.name == bootPartition:
			all = append(all, fileSystem{kind, p})
		}
	}
	if len(all) == 0 || all[0].name != rootPartition {
		return nil, fmt.Errorf("cannot read disk %s: it has no root", disk)
	}
	return all, nil
}

// kindOf detects the file system in a partition by its magic number. It returns "" if it is of no
// known kind.
func kindOf(disk string, p partition) (FileSystem, error) {
	f, err := os.Open(disk)
	if err != nil {
		return "", fmt.Errorf("cannot read disk: %w", err)
	}
	defer f.Close()
	const btrfs = 64<<10 + 64 // where its magic number is
	head := make([]byte, 2<<10)
	if _, err := f.ReadAt(head, p.offset); err != nil {
		return "", fmt.Errorf("cannot read disk %s: %w", disk, err)
	}
	magic := make([]byte, 8)
	if _, err := f.ReadAt(magic, p.offset+btrfs); err == nil && string(magic) == "_BHRfS_M" {
		return Btrfs, nil
	}
	switch {
	case string(head[:4]) == "XFSB":
		return XFS, nil
	case string(head[1024+56:1024+58]) == "\x53\xef":
		return Ext4, nil
	}
	return "", nil
}

// mountPoint returns where the file system is mounted, relative to the root's mount point.
func (f fileSystem) mountPoint() string {
	if f.name == bootPartition {
		return "/boot"
	}
	return ""
}

// options returns the mount options.
func (f fileSystem) options() string {
	options := fmt.Sprintf("loop,offset=%d,sizelimit=%d", f.offset, f.size)
	if f.kind == XFS {
		options += ",nouuid" // a copy with the same UUID may be mounted
	}
	return options
}

// check returns an error if the file system is not clean. It repairs nothing.
func (f fileSystem) check(ctx context.Context, c *Contents) error {
	var err error
	if f.kind == XFS {
		_, err = run(ctx, "nsenter", "--mount", "--root", "--target", strconv.Itoa(c.holder.Process.Pid),
			"bash", "-ec", `xfs_repair -n "$(findmnt -n -o SOURCE "$1")"`, "check", c.dir+f.mountPoint())
	} else {
		_, err = run(ctx, "e2fsck", "-f", "-n", fmt.Sprintf("%s?offset=%d", c.disk, f.offset))
	}
	if err != nil {
		return fmt.Errorf("the file system is not clean: %w", err)
	}
	return nil
}
