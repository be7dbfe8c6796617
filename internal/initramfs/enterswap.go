package initramfs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"machine-pivot/internal/pid1"
)

// mark makes the start of the new system another one than that of the initramfs: see package start. If one of the next calls fails, the
// machine reboots, and the mark is gone.
func (w *Way) mark(context.Context) error {
	path := filepath.Join(w.Run, strings.TrimPrefix(pid1.EnteredMark, "/run"))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(w.Request.Deployment+"\n"), 0o644)
}

// syncAll keeps a reset of the machine from costing what was written before.
func syncAll(context.Context) error {
	unix.Sync()
	return nil
}

// unmountOld detaches the old root with all that is mounted below it. Processes may still have files open there.
func (w *Way) unmountOld(context.Context) error {
	return unix.Unmount(w.Root, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
}

func (w *Way) mountNew(context.Context) error {
	defer w.tree.Close()
	return unix.MoveMount(int(w.tree.Fd()), "", unix.AT_FDCWD, w.Root, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// replaceRun replaces /run/ostree-booted, /run/ostree and whatever else ostree-prepare-root writes by those of the new
// root. The old ones are moved out of the way, and what is mounted there is unmounted.
func (w *Way) replaceRun(context.Context) error {
	old := filepath.Join(w.ownRun(), "old")
	if err := os.MkdirAll(old, 0o755); err != nil {
		return err
	}
	for _, move := range []struct{ from, to string }{{w.Run, old}, {w.ownRun(), w.Run}} {
		files, err := filepath.Glob(filepath.Join(move.from, "ostree*"))
		if err != nil {
			return err
		}
		for _, file := range files {
			if err := os.Rename(file, filepath.Join(move.to, filepath.Base(file))); err != nil {
				return fmt.Errorf("cannot replace %s: %w", file, err)
			}
		}
	}
	return detachBelow(old)
}

// detachBelow unmounts what is mounted below a directory.
func detachBelow(dir string) error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		return err
	}
	for _, m := range slices.Backward(mounts) { // those on top first
		if err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("cannot unmount %s: %w", m.Mountpoint, err)
		}
	}
	return nil
}
