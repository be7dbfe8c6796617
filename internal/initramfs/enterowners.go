package initramfs

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/moby/sys/mountinfo"
)

// mountOwners are units of Fedora CoreOS and RHCOS that mount something below /sysroot, and unmount it when they are stopped
// before the system starts. If their mounts are gone by then, they fail, and emergency mode starts. They are stopped in
// the order in which their mounts are on top of each other.
func mountOwners() []string {
	return []string{"ignition-ostree-mount-state-overlays.service", "ignition-mount.service", "ignition-ostree-mount-var.service"}
}

func (w *Way) stopOwners(ctx context.Context) error {
	for _, unit := range mountOwners() {
		if err := w.Stop(ctx, unit); err != nil {
			return err
		}
	}
	return nil
}

// checkMounts returns an error if anything is mounted at or below the root that ostree-prepare-root has not mounted.
// An unknown unit may unmount that later, and fail.
func (w *Way) checkMounts(context.Context) error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(w.Root))
	if err != nil {
		return err
	}
	return foreignMounts(w.Root, mounts)
}

// foreignMounts returns an error if one of the mounts at and below root is not one of ostree-prepare-root's. Those are the
// deployment, the physical root and each stateroot's /var in it, /etc and /usr if their flags differ, and /boot if it
// is on the physical root.
func foreignMounts(root string, mounts []*mountinfo.Info) error {
	var roots []*mountinfo.Info
	for _, m := range mounts {
		if m.Mountpoint == root || m.Mountpoint == filepath.Join(root, physicalPath) {
			roots = append(roots, m)
		}
	}
	if len(roots) != 2 || roots[0].Mountpoint == roots[1].Mountpoint {
		return errors.New(root + " is not as ostree-prepare-root mounts it")
	}
	i := slices.IndexFunc(roots, func(m *mountinfo.Info) bool { return m.Mountpoint != root })
	for _, m := range mounts {
		on := m.Major == roots[i].Major && m.Minor == roots[i].Minor
		switch m.Mountpoint {
		case root, roots[i].Mountpoint, filepath.Join(root, "etc"), filepath.Join(root, "usr"):
			continue
		}
		if m.Mountpoint == filepath.Join(root, "boot") && on || isVar(roots[i].Mountpoint, m.Mountpoint) && on {
			continue
		}
		return fmt.Errorf("%s is mounted at %s, which no known unit unmounts", m.Source, m.Mountpoint)
	}
	return nil
}

// isVar reports whether a path is that of a stateroot's /var below the physical root, which ostree-prepare-root binds
// on itself.
func isVar(physical, at string) bool {
	matches, err := filepath.Match(filepath.Join(physical, "ostree/deploy/*/var"), at)
	return err == nil && matches
}
