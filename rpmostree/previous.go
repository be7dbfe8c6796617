package rpmostree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
)

// A commit has libostree remove what was the rollback until then. That must not fail, because libostree removes after
// it has switched the boot entries. It must not happen before the new system is checked either, because there would be
// no way back. So in the mount namespace of the commit all deployments look pinned, and those that libostree would have
// removed are removed after the checks. A process that is killed in between leaves one deployment more, which the next
// commit removes.

// dropped returns the deployments that libostree leaves out when it adds one: those of the stateroot that are neither
// booted nor pinned (ostree-sysroot.c, ostree_sysroot_simple_write_deployment).
func dropped(all []ostree.Deployment, booted ostree.Deployment) []ostree.Deployment {
	return slices.DeleteFunc(slices.Clone(all), func(d ostree.Deployment) bool {
		return d.ID() == booted.ID() || d.Stateroot != booted.Stateroot || d.Origin.Pinned()
	})
}

// showPinned shows the deployments that libostree would remove as pinned, in this mount namespace. One without an origin
// cannot be pinned.
func (e *Ostree) showPinned(booted ostree.Deployment) error {
	all, err := e.Sysroot.Deployments()
	for _, d := range dropped(all, booted) {
		if err == nil {
			err = hostfiles.ShowContent(d.Path+".origin", d.Origin.PinnedBytes())
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return err
}

// dropPrevious removes the deployments that libostree would have removed in a commit that succeeded. The commit stays, if
// one cannot be removed: the next one removes it.
func (e *Ostree) dropPrevious(ctx context.Context, before []ostree.Deployment, booted ostree.Deployment) {
	for _, d := range dropped(before, booted) {
		if err := e.remove(ctx, d); err != nil {
			e.note(fmt.Sprintf("warning: deployment %s, which the new one replaces, stays for now: %v", d.ID(), err))
		}
	}
}

// remove removes a deployment that is not booted, and its boot entry, if it has one.
func (e *Ostree) remove(ctx context.Context, d ostree.Deployment) error {
	all, err := e.Sysroot.Deployments()
	entry := indexOf(all, d)
	if err != nil || entry < 0 {
		return err
	}
	if err := checkUnmounted(d); err != nil {
		return err
	}
	if err := e.unlock(d); err != nil {
		return err
	}
	err = e.undeploy(ctx, entry)
	if all, rerr := e.Sysroot.Deployments(); err != nil && rerr == nil && indexOf(all, d) < 0 {
		return nil // it fails after it has written the boot entries, in a step that is repeated
	}
	return err
}

// checkUnmounted returns an error if a file system is mounted below a deployment: libostree removes what is in it, and then
// fails.
func checkUnmounted(d ostree.Deployment) error {
	path, err := filepath.EvalSymlinks(d.Path)
	if err != nil {
		return err
	}
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		return m.Mountpoint != path && !strings.HasPrefix(m.Mountpoint, path+"/"), false
	})
	if err != nil {
		return fmt.Errorf("cannot look for mounts below %s: %w", d.Path, err)
	}
	if len(mounts) > 0 {
		return fault.New(fault.Refused, "something is mounted at %s", mounts[0].Mountpoint).WithHint("umount %s", mounts[0].Mountpoint)
	}
	return nil
}

// unlock lets libostree remove a deployment in which somebody has locked files with chattr. A file of /usr is an object of
// the repository, and loses its lock in each deployment that has it: libostree could remove none of its names. libostree
// unlocks only the deployment's directory itself.
func (e *Ostree) unlock(d ostree.Deployment) error {
	names, err := os.ReadDir(d.Path)
	if err != nil {
		return fmt.Errorf("cannot look at deployment %s: %w", d.ID(), err)
	}
	paths := []string{d.Path + ".origin"}
	for _, n := range names {
		paths = append(paths, filepath.Join(d.Path, n.Name()))
	}
	return hostfiles.InNamespace(func() error {
		err := hostfiles.RemountWritable(e.Sysroot.Physical())
		for _, path := range paths {
			err = errors.Join(err, hostfiles.Unlock(path))
		}
		return err
	})
}

// checkRemovable returns an error if libostree could not remove what it removes: before it writes boot entries unlocked
// deployments without one, after that earlier boot entries and kernels.
func (e *Ostree) checkRemovable() error {
	left, err := e.Sysroot.Left()
	for _, d := range left {
		if err == nil {
			err = e.unlock(d)
		}
	}
	for _, name := range []string{"loader.0", "loader.1", "ostree"} {
		if err != nil {
			break
		}
		var locked string
		if locked, err = hostfiles.Locked(e.Sysroot.BootPath(name)); locked != "" {
			err = fault.New(fault.Refused, "cannot write boot entries: somebody has locked %s, which libostree could not replace", locked).
				WithHint("unlock it: chattr -i -a %s", locked)
		}
	}
	return err
}

// keepPrevious has libostree keep, in this mount namespace, the deployments that a commit drops, unless it has to remove
// their kernels to make room. Then it must be able to.
func (e *Ostree) keepPrevious(ctx context.Context, booted ostree.Deployment, commit ostree.Checksum) error {
	space, err := e.bootSpace(ctx, commit)
	if err != nil {
		return err
	}
	if space.fits() {
		return e.showPinned(booted)
	}
	all, err := e.Sysroot.Deployments()
	for _, d := range dropped(all, booted) {
		if err == nil {
			err = checkUnmounted(d)
		}
		if err == nil {
			err = e.unlock(d)
		}
	}
	return err
}

func (e *Ostree) note(message string) {
	if e.Warn != nil {
		e.Warn(message)
	}
}
