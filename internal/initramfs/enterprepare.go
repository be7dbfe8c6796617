package initramfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
	"machine-pivot/kargs"
)

// physicalPath is the physical root below a deployment that ostree-prepare-root has mounted.
const physicalPath = "sysroot"

// bindPhysical shows the physical root alone, and writable, as the root file system is before ostree-prepare-root
// runs: with sysroot.readonly that has mounted it read-only.
func (w *Way) bindPhysical(context.Context) error {
	if err := os.MkdirAll(w.Scratch, 0o755); err != nil {
		return err
	}
	if err := bindInto(filepath.Join(w.Root, physicalPath), w.Scratch); err != nil {
		return err
	}
	return hostfiles.RemountWritable(w.Scratch)
}

// ownRun is the directory that stands in for /run: ostree-prepare-root fails if /run/ostree exists, and writes there
// what libostree reads later.
func (w *Way) ownRun() string { return filepath.Join(w.Run, enterWorkPath) }

func (w *Way) bindRun(context.Context) error {
	if err := os.MkdirAll(w.ownRun(), 0o755); err != nil {
		return err
	}
	return bindInto(w.ownRun(), w.Run)
}

// bindCmdline shows a command line that has the new deployment's ostree=. Not all versions of ostree-prepare-root take
// one as an argument.
func (w *Way) bindCmdline(context.Context) error {
	text, err := os.ReadFile(w.Cmdline)
	if err != nil {
		return err
	}
	line := kargs.Split(string(text)).WithoutOstree()
	line = slices.Insert(line, 0, "ostree="+w.Request.Link)
	file := filepath.Join(w.Run, "cmdline")
	if err := os.WriteFile(file, []byte(line.String()+"\n"), 0o644); err != nil {
		return err
	}
	return bindInto(file, w.Cmdline)
}

func (w *Way) prepareRoot(ctx context.Context) error {
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		return err
	}
	w.mounted = map[int]bool{}
	for _, m := range mounts {
		w.mounted[m.ID] = true
	}
	out, err := exec.CommandContext(ctx, w.PrepareRoot, w.Scratch).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %s (%w)", w.PrepareRoot, strings.TrimSpace(string(out)), err)
	}
	return nil
}

// checkRoot returns an error unless the new root is the requested deployment, as libostree will see it, and complete.
func (w *Way) checkRoot(context.Context) error {
	if err := w.checkBooted(); err != nil {
		return err
	}
	for _, path := range []string{"usr/lib/os-release", "etc", physicalPath + "/ostree/repo"} {
		if _, err := os.Stat(filepath.Join(w.Scratch, path)); err != nil {
			return err
		}
	}
	if err := hostfiles.CheckWritable(filepath.Join(w.Scratch, "etc")); err != nil {
		return err
	}
	return w.checkElsewhere()
}

// checkElsewhere returns an error if ostree-prepare-root has mounted something outside of the new root, which would not
// go along.
func (w *Way) checkElsewhere() error {
	mounts, err := mountinfo.GetMounts(nil)
	for _, m := range mounts {
		if !w.mounted[m.ID] && m.Mountpoint != w.Scratch && !strings.HasPrefix(m.Mountpoint, w.Scratch+"/") {
			return fmt.Errorf("%s is mounted at %s, outside of the new root", m.Source, m.Mountpoint)
		}
	}
	return err
}

// checkBooted reads which deployment libostree will take for the booted one.
func (w *Way) checkBooted() error {
	at := filepath.Join(w.Scratch, "run")
	if err := bindInto(w.Run, at); err != nil {
		return err
	}
	booted, err := ostree.OpenSysroot(w.Scratch).Booted()
	if uerr := unix.Unmount(at, 0); uerr != nil {
		err = errors.Join(err, fmt.Errorf("cannot unmount %s: %w", at, uerr))
	}
	if err == nil && booted.ID() != w.Request.Deployment {
		err = fmt.Errorf("it is deployment %s", booted.ID())
	}
	return err
}

// takeTree opens a copy of the new root's mounts, which exists as long as the file is open.
func (w *Way) takeTree(context.Context) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, w.Scratch, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return fmt.Errorf("cannot copy the mounts of %s: %w", w.Scratch, err)
	}
	w.tree = os.NewFile(uintptr(fd), w.Scratch)
	return nil
}

func bindInto(from, to string) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("cannot mount %s at %s: %w", from, to, err)
	}
	return nil
}
