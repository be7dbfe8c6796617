package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
)

// opalPath exists on POWER machines with the firmware OPAL. Their boot loader, petitboot, reads GRUB's configuration by
// a parser of its own.
const opalPath = "/sys/firmware/opal"

const bootPath = "/boot"

// grubOnce returns the method of GRUB.
func (h *Host) grubOnce() (oneShot, error) {
	if opal, err := h.Has(opalPath); opal || err != nil {
		return oneShot{}, errors.Join(err, errors.New("petitboot is not known to start an entry once"))
	}
	l, err := findGrub(h.Path(bootPath), h.GrubWrites)
	if err != nil {
		return oneShot{}, err
	}
	return oneShot{
		loader: l.method(),
		check: func() error {
			return h.writeGrub(context.Background(), l.Dir, l.check)
		},
		set: func(ctx context.Context, e ostree.BootEntry) error {
			return h.writeGrub(ctx, l.Dir, func(w grubWriter) error { return l.set(w, e.File) })
		},
		forget: func(ctx context.Context) error { return h.writeGrub(ctx, l.Dir, l.clear) },
	}, nil
}

// EndOnce removes what BootOnce has added to the boot loader's configuration, after the boot that
// it was for. It does not depend on what the configuration is by now. What is removed stays so: where there is nothing, a
// run that was killed may have removed it, and not synced that.
func (h *Host) EndOnce(ctx context.Context) error {
	var errs []error
	for _, dir := range grubDirectories(h.Path(bootPath)) {
		if grubHooked(dir) {
			errs = append(errs, h.writeGrub(ctx, dir, grubWriter.removeHook))
		} else if err := h.Disk.Sync(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("cannot sync %s: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}

// writeGrub calls write with a grubWriter for a directory of GRUB. Like libostree, it writes to a /boot
// that is mounted read-only through a private, writable mount.
func (h *Host) writeGrub(ctx context.Context, dir string, write func(grubWriter) error) error {
	w := grubWriter{Disk: h.Disk, Dir: dir, Flush: func() error { return h.flushBoot(ctx, dir) }}
	var system unix.Statfs_t
	if err := unix.Statfs(dir, &system); err != nil {
		return fmt.Errorf("cannot look at %s: %w", dir, err)
	}
	if system.Flags&unix.ST_RDONLY == 0 {
		return write(w)
	}
	view, err := hostfiles.OpenWritable(h.Path(bootPath), dir)
	if err != nil {
		return err
	}
	w.Dir = fmt.Sprintf("/proc/self/fd/%d", view.Fd())
	return errors.Join(write(w), view.Close())
}

// freezeScript freezes the file system of a directory and thaws it. A shell does it, because what
// is frozen has to be thawed even if this process is killed meanwhile.
const freezeScript = `fsfreeze --freeze "$1"; frozen=$?; fsfreeze --unfreeze "$1" || [ $frozen != 0 ] && exit $frozen`

// flushBoot writes all of the file system of GRUB's directory to where GRUB finds it. As in libostree,
// a freeze and a thaw have the file system empty its journal.
func (h *Host) flushBoot(ctx context.Context, dir string) error {
	if err := h.Disk.SyncAll(dir); err != nil {
		return fmt.Errorf("cannot sync %s: %w", dir, err)
	}
	if !onJournal(dir) {
		return nil
	}
	path := filepath.Join("/", bootPath, filepath.Base(dir)) // in the system, which may be in a chroot
	if _, err := h.Run(context.WithoutCancel(ctx), "/bin/sh", "-c", freezeScript, "freeze", path); err != nil {
		return fmt.Errorf("cannot have the file system of %s empty its journal: %w", dir, err)
	}
	return nil
}
