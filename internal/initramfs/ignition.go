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

// In Fedora CoreOS and RHCOS a unit of the started system removes the stamp. It runs if the kernel command line has
// ignition.firstboot, and fails without the stamp. Whoever removes the stamp keeps that unit from running in the rest
// of this boot. Either system may start: the new one, or the old one if pivot cannot continue. Both read the drop-in in
// /run, which ends with the boot.
const (
	completeDropIn    = "/run/systemd/system/coreos-ignition-firstboot-complete.service.d/50-pivot.conf"
	completeCondition = "# Written by pivot, which removes that file before a commit in the initramfs.\n[Unit]\nConditionPathExists=/boot/" + hostfiles.IgnitionStamp + "\n"
)

// keepCompleted keeps that unit from running without the stamp, in the rest of this boot and in whichever system starts.
// Whoever removes the stamp calls it first.
func (i *Initramfs) keepCompleted() error {
	path := i.path(completeDropIn)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(completeCondition), 0o644)
	}
	if err != nil {
		return fmt.Errorf("cannot keep the unit that ends Ignition's first boot from failing: %w", err)
	}
	return nil
}

// CloseIgnition removes hostfiles.IgnitionStamp, as the started system would
// (coreos-ignition-firstboot-complete.service), so that the next boot does not run Ignition
// again. Before that, it syncs what Ignition wrote, because Ignition will not write it again.
// It removes the stamp before the config: otherwise a power cut between the two would make
// Ignition run without its config.
func (i *Initramfs) CloseIgnition(disk hostfiles.Disk) error {
	if err := i.keepCompleted(); err != nil {
		return err
	}
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
