package host

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestWritable: GRUB writes to the blocks of a file, which btrfs writes anew each time.
func TestWritable(t *testing.T) {
	for system, want := range map[int64]bool{
		unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.MSDOS_SUPER_MAGIC: true,
		unix.BTRFS_SUPER_MAGIC: false, unix.TMPFS_MAGIC: false, unix.OVERLAYFS_SUPER_MAGIC: false,
	} {
		if grubWritable(system) != want {
			t.Errorf("file system %x: %v, want %v", system, !want, want)
		}
	}
	for system, want := range map[int64]bool{unix.EXT4_SUPER_MAGIC: true, unix.XFS_SUPER_MAGIC: true, unix.MSDOS_SUPER_MAGIC: false} {
		if hasJournal(system) != want {
			t.Errorf("file system %x has a journal: %v, want %v", system, !want, want)
		}
	}
}
