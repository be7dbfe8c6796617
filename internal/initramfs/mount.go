package initramfs

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
)

// Mount completes the system's file systems: a writable sysroot, its /var and its
// /boot. In the namespace of this process only: see Enter.
func (i *Initramfs) Mount() error {
	sysroot := ostree.OpenSysroot(i.Root)
	booted, err := sysroot.Booted()
	if err != nil {
		return later("%w", err)
	}
	// Hosts with sysroot.readonly have it read-only by now.
	if err := i.writable(sysroot.Physical()); err != nil {
		return err
	}
	mounted, err := mountPoints()
	if err != nil {
		return err
	}
	if at := i.path("/var"); !mounted[at] { // else Ignition's: a file system of its own
		if err := bind(filepath.Join(sysroot.Physical(), "ostree/deploy", booted.Stateroot, "var"), at, 0); err != nil {
			return err
		}
	}
	return i.mountBoot(mounted)
}

// writable makes a mount writable, or says that it cannot. Nothing is tried: the
// top directory of many hosts is immutable.
func (i *Initramfs) writable(mountPoint string) error {
	if err := hostfiles.RemountWritable(mountPoint); err != nil {
		return later("%w", err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(mountPoint, &st); err != nil {
		return later("cannot look at %s: %w", mountPoint, err)
	}
	if st.Flags&unix.ST_RDONLY != 0 {
		return later("cannot write to %s: the file system is read-only", mountPoint)
	}
	return nil
}

// mountPoints are those of this namespace (proc_pid_mountinfo(5)).
func mountPoints() (map[string]bool, error) {
	text, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, later("cannot read what is mounted: %w", err)
	}
	points := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 {
			points[fields[4]] = true
		}
	}
	return points, nil
}
