package vm

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
)

// FlipBit flips a bit in the first block of a file on the root file system (Ext4) of a powered-off machine, as a
// failing disk would. The file system itself stays clean. path begins at the root of the disk, such as
// /ostree/repo/config.
func (m *Machine) FlipBit(ctx context.Context, path string) (err error) {
	all, err := fileSystemsOn(ctx, m.Disk)
	if err != nil {
		return err
	}
	root := all[0]
	if root.kind != Ext4 {
		return fmt.Errorf("cannot flip a bit of %s: the root is not ext4", path)
	}
	block, err := root.firstBlock(ctx, m.Disk, path)
	if err != nil {
		return fmt.Errorf("cannot flip a bit of %s: %w", path, err)
	}
	disk, err := os.OpenFile(m.Disk, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("cannot flip a bit of %s: %w", path, err)
	}
	defer disk.Close()
	var at [1]byte
	if _, err = disk.ReadAt(at[:], root.offset+block); err == nil {
		at[0] ^= 1
		_, err = disk.WriteAt(at[:], root.offset+block)
	}
	return err
}

// firstBlock returns where the first block of a file is, in bytes from the file system's beginning.
func (f fileSystem) firstBlock(ctx context.Context, disk, path string) (int64, error) {
	at := fmt.Sprintf("%s?offset=%d", disk, f.offset)
	header, err := run(ctx, "dumpe2fs", "-h", at)
	if err != nil {
		return 0, err
	}
	size := regexp.MustCompile(`(?m)^Block size:\s+(\d+)$`).FindSubmatch(header)
	blocks, err := run(ctx, "debugfs", "-R", "blocks "+path, at)
	if err != nil {
		return 0, err
	}
	first := regexp.MustCompile(`^(\d+)\s`).FindSubmatch(blocks)
	if size == nil || first == nil {
		return 0, fmt.Errorf("cannot understand dumpe2fs or debugfs: %q", blocks)
	}
	number, err := strconv.ParseInt(string(first[1]), 10, 64)
	if err != nil {
		return 0, err
	}
	bytes, err := strconv.ParseInt(string(size[1]), 10, 64)
	return number * bytes, err
}
