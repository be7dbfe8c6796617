package initramfs

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"machine-pivot/kargs"
)

// bootLabel is the label of the file system that Fedora CoreOS mounts at /boot.
const bootLabel = "LABEL=boot"

// mountBoot mounts the system's /boot writable. It is the device of the kernel command line or of fstab, else the
// physical root's boot if that has boot entries, else the file system with the usual label.
//
// If /boot is on the root file system, ostree-prepare-root has mounted it already, up to libostree 2025. Later ones leave
// that to a generator of the started system (ostree-system-generator), which looks at the same directory.
func (i *Initramfs) mountBoot(physical string, mounted map[string]bool) error {
	at := i.path("/boot")
	if hasEntries(at) {
		if !mounted[at] {
			return nil
		}
		return writable(at)
	}
	device := i.bootDevice()
	if own := filepath.Join(physical, "boot"); device == "" && hasEntries(own) {
		if err := bind(own, at, 0); err != nil {
			return err
		}
		return writable(at)
	}
	device = cmp.Or(device, bootLabel)
	if err := i.Run("mount", "-o", "rw", device, at); err != nil {
		return deferred("cannot mount /boot: %w", err)
	}
	if !hasEntries(at) {
		return deferred("cannot use %s as /boot: it has no boot entries", device)
	}
	return nil
}

// hasEntries reports whether a directory is a /boot with boot entries.
func hasEntries(boot string) bool {
	_, err := os.Stat(filepath.Join(boot, "loader/entries"))
	return err == nil
}

// bootDevice returns the device to mount at /boot, in a form for mount(8): the kernel command line's (boot=, as of
// Fedora CoreOS) or fstab's; "" if neither has one. mount(8), which every systemd initramfs has, resolves labels, UUIDs
// and types.
func (i *Initramfs) bootDevice() string {
	line, err := os.ReadFile(i.path("/proc/cmdline"))
	if err == nil {
		if values := kargs.Split(string(line)).Values("boot"); len(values) > 0 {
			return values[len(values)-1]
		}
	}
	return i.fstab("/boot")
}

// fstab returns the device of a mount point in the system's fstab(5), or "" if there is none.
func (i *Initramfs) fstab(mountPoint string) string {
	text, err := os.ReadFile(i.path("/etc/fstab"))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) > 1 && !strings.HasPrefix(fields[0], "#") && filepath.Clean(fields[1]) == mountPoint {
			return fields[0]
		}
	}
	return ""
}

// run runs a program of the initramfs.
func run(argv ...string) error {
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return deferred("%s: %s (%w)", strings.Join(argv, " "), strings.TrimSpace(string(out)), err)
	}
	return nil
}
