package initramfs

import (
	"path/filepath"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
)

// Mount mounts what the system lacks: a writable sysroot, /var and /boot. The mounts exist only
// in the mount namespace of this process; see Enter.
func (i *Initramfs) Mount() error {
	sysroot := ostree.OpenSysroot(i.Root)
	booted, err := sysroot.Booted()
	if err != nil {
		return deferred("%w", err)
	}
	// With sysroot.readonly it is mounted read-only at this point.
	if err := writable(sysroot.Physical()); err != nil {
		return err
	}
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		return deferred("cannot read what is mounted: %w", err)
	}
	mounted := map[string]bool{}
	for _, m := range mounts {
		mounted[m.Mountpoint] = true
	}
	if at := i.path("/var"); !mounted[at] { // Ignition's units mount a /var on its own file system
		if err := bind(filepath.Join(sysroot.Physical(), "ostree/deploy", booted.Stateroot, "var"), at, 0); err != nil {
			return err
		}
	}
	return i.mountBoot(sysroot.Physical(), mounted)
}

// writable remounts a file system writable and checks its flags. It does not test by writing,
// because the top directory is immutable on many hosts.
func writable(mountPoint string) error {
	if err := hostfiles.RemountWritable(mountPoint); err != nil {
		return deferred("%w", err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(mountPoint, &st); err != nil {
		return deferred("cannot look at %s: %w", mountPoint, err)
	}
	if st.Flags&unix.ST_RDONLY != 0 {
		return deferred("cannot write to %s: the file system is read-only", mountPoint)
	}
	return nil
}
