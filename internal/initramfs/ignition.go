package initramfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"machine-pivot/internal/hostfiles"
)

// ignitionDir is a directory in /boot of Fedora CoreOS that may contain Ignition's config.
const ignitionDir = "ignition"

// CloseIgnition removes hostfiles.IgnitionStamp, as the started system would
// (coreos-ignition-firstboot-complete.service), so that the next boot does not run Ignition
// again. Before that, it syncs what Ignition wrote, because Ignition will not write it again.
// It removes the stamp before the config: otherwise a power cut between the two would make
// Ignition run without its config.
func (i *Initramfs) CloseIgnition(disk hostfiles.Disk) error {
	boot := i.path("/boot")
	stamp := filepath.Join(boot, hostfiles.IgnitionStamp)
	if _, err := os.Lstat(stamp); err == nil {
		if err := errors.Join(disk.SyncAll(i.path("/etc")), disk.SyncAll(i.path("/var"))); err != nil {
			return fmt.Errorf("cannot sync what Ignition wrote: %w", err)
		}
		if err := errors.Join(disk.Remove(stamp), disk.Sync(boot)); err != nil {
			return fmt.Errorf("cannot close Ignition's first boot: %w", err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cannot close Ignition's first boot: %w", err)
	}
	return removeAll(disk, filepath.Join(boot, ignitionDir))
}

// removeAll removes a directory with its contents.
func removeAll(disk hostfiles.Disk, dir string) error {
	var paths []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		paths = append(paths, path)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, path := range slices.Backward(paths) { // contents before their directory
		if err == nil {
			err = disk.Remove(path)
		}
	}
	if err != nil {
		return fmt.Errorf("cannot remove Ignition's config: %w", err)
	}
	return nil
}
