package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// checkGrubWrites returns an error if GRUB cannot write to an existing file at a path, and so would start
// an entry again and again. GRUB can only write to the blocks of a file, on certain file systems, and
// not on device mapper or RAID.
func checkGrubWrites(path string) error {
	var file unix.Stat_t
	var system unix.Statfs_t
	if err := errors.Join(unix.Stat(path, &file), unix.Statfs(path, &system)); err != nil {
		return fmt.Errorf("cannot look at GRUB's environment: %w", err)
	}
	if !grubWritable(int64(system.Type)) {
		return fmt.Errorf("GRUB cannot write to the file system of %s", path)
	}
	// Of a partition, the parent is the disk.
	device := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(uint64(file.Dev)), unix.Minor(uint64(file.Dev)))
	for _, kind := range []string{"dm", "md", "../dm", "../md"} {
		if real, err := filepath.EvalSymlinks(device); err == nil && exists(filepath.Join(real, kind)) {
			return fmt.Errorf("GRUB cannot write to the device of %s", path)
		}
	}
	return nil
}

// grubWritable reports whether GRUB can write to files of a file system, by its type in statfs(2).
// btrfs, for one, writes each change elsewhere (GRUB calls such a file sparse).
func grubWritable(system int64) bool {
	return hasJournal(system) || system == unix.MSDOS_SUPER_MAGIC
}

func hasJournal(system int64) bool {
	return slices.Contains([]int64{unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC}, system)
}

// onJournal reports whether the file system of a path has a journal, which GRUB does not read: what
// was only synced to it may not be where GRUB looks.
func onJournal(path string) bool {
	var system unix.Statfs_t
	return unix.Statfs(path, &system) == nil && hasJournal(int64(system.Type))
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
