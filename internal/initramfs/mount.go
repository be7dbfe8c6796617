package initramfs

import (
	"os"
	"path/filepath"
	"strings"

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
	if err := i.writable(sysroot.Physical()); err != nil {
		return err
	}
	mounted, err := mountPoints()
	if err != nil {
		return err
	}
	if at := i.path("/var"); !mounted[at] { // Ignition's units mount a /var on its own file system
		if err := bind(filepath.Join(sysroot.Physical(), "ostree/deploy", booted.Stateroot, "var"), at, 0); err != nil {
			return err
		}
	}
	return i.mountBoot(mounted)
}

// writable remounts a file system writable and checks its flags. It does not test by writing,
// because the top directory is immutable on many hosts.
func (i *Initramfs) writable(mountPoint string) error {
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

// mountPoints returns the mount points in this namespace (proc_pid_mountinfo(5)).
func mountPoints() (map[string]bool, error) {
	text, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, deferred("cannot read what is mounted: %w", err)
	}
	points := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 {
			points[fields[4]] = true
		}
	}
	return points, nil
}
