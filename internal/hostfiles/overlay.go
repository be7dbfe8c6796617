package hostfiles

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Overlay describes changes to a directory of the host.
type Overlay struct {
	Dir   string // the directory
	At    string // its path in the paths of Files, such as "/etc"
	Image string // the directory with the image's version of Dir, for KindDefault; "" if there is none
	Files []File // entries to add, replace or remove
	// Carried are paths of directories in Files of which libostree's merge is to set owner and mode also
	// where the next image has the directory. A FIFO in each makes it do that; the merge itself it passes over.
	Carried []string
}

// WithOverlays calls work in a private mount namespace in which overlays with their
// upper layers in memory are mounted over directories. If overlayfs cannot be used, a
// copy is mounted instead. Outside of the namespace, and afterwards, the directories are
// unchanged. Processes that work starts see the overlays too; goroutines that it starts
// do not.
//
// This makes files part of an atomic step of another program: libostree merges the /etc
// that it sees into the new deployment.
func WithOverlays(work func() error, overlays ...Overlay) error {
	return InNamespace(func() error { return overlaid(work, overlays) })
}

// withoutMounts mounts a directory once more, without what is mounted in it: a user could have
// mounted something, and hidden things below it that overlayfs shows.
func withoutMounts(dir, scratch string) (string, error) {
	below := filepath.Join(scratch, "below")
	err := os.Mkdir(below, 0o700)
	if err == nil {
		err = unix.Mount(dir, below, "", unix.MS_BIND, "")
	}
	if err != nil {
		return "", fmt.Errorf("cannot overlay %s: %w", dir, err)
	}
	return below, nil
}

// mountCopy mounts a copy of dir over it, made from the directory below. So there is one way to commit: files that are
// written into the running /etc and merged at shutdown would be a second one, and nobody sees its failure.
func mountCopy(dir, below, scratch string) error {
	copied := filepath.Join(scratch, "copy")
	if err := copyTree(below, copied); err != nil {
		return err
	}
	if err := unix.Mount(copied, dir, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("cannot mount a copy over %s: %w", dir, err)
	}
	return nil
}

// overlaid mounts the first overlay, then the others, and then calls work.
func overlaid(work func() error, overlays []Overlay) (err error) {
	if len(overlays) == 0 {
		return work()
	}
	o := overlays[0]
	// Not in /tmp, which may be on a read-only sysroot (sysroot.readonly=true).
	scratch, err := os.MkdirTemp("/run", fmt.Sprintf("pivot-overlay-%d-*", os.Getpid()))
	if err != nil {
		return fmt.Errorf("cannot overlay %s: %w", o.Dir, err)
	}
	defer func() { err = errors.Join(err, os.Remove(scratch)) }()
	if err := unix.Mount("tmpfs", scratch, "tmpfs", 0, "mode=0700"); err != nil {
		return fmt.Errorf("cannot overlay %s: cannot mount tmpfs: %w", o.Dir, err)
	}
	// Unmount lazily, because the overlay still uses it until the namespace ends.
	defer func() { err = errors.Join(err, unix.Unmount(scratch, unix.MNT_DETACH)) }()
	below, err := withoutMounts(o.Dir, scratch)
	if err != nil {
		return err
	}
	if err := mountOverlay(o.Dir, below, scratch); err != nil {
		// The kernel has no overlayfs, or overlayfs does not support the file system.
		if cerr := mountCopy(o.Dir, below, scratch); cerr != nil {
			return fmt.Errorf("%w, nor can it be copied: %w", err, cerr)
		}
	}
	if err := o.fill(); err != nil {
		return err
	}
	return overlaid(work, overlays[1:])
}

// mountOverlay mounts an overlay over dir, with users' directories as they are in the directory below.
func mountOverlay(dir, below, scratch string) error {
	upper, workdir := filepath.Join(scratch, "upper"), filepath.Join(scratch, "work")
	for _, d := range []string{upper, workdir} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return fmt.Errorf("cannot overlay %s: %w", dir, err)
		}
	}
	if strings.ContainsAny(dir, `,:\`) {
		return fmt.Errorf("cannot overlay %q: its name has a character that separates mount options", dir)
	}
	if err := errors.Join(copyOwnership(dir, upper), freeze(below, upper)); err != nil {
		return err
	}
	options := "lowerdir=" + dir + ",upperdir=" + upper + ",workdir=" + workdir
	if err := unix.Mount("overlay", dir, "overlay", 0, options); err != nil {
		return fmt.Errorf("cannot overlay %s: %w", dir, err)
	}
	return nil
}

// copyOwnership copies owner and mode of the lower directory to the upper one, because
// the root of an overlay has those of its upper directory.
func copyOwnership(from, to string) error {
	var st unix.Stat_t
	if err := unix.Stat(from, &st); err != nil {
		return fmt.Errorf("cannot overlay %s: %w", from, err)
	}
	return errors.Join(os.Chown(to, int(st.Uid), int(st.Gid)), unix.Chmod(to, st.Mode&0o7777))
}
