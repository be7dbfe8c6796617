package rehearse

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Device is a device with a driver, which the machine needs to start.
type Device struct {
	Alias   string   // by which the kernel asks modprobe for a driver
	Below   string   // the mount point that stands on it
	Modules []string // that serve it in the running system
}

// Devices returns the devices that the file systems of the machine at root, and of its /boot, stand on: disks, through
// partitions, device mapper and md, and what these are connected to. A file system on several disks has none, since its
// device is not one of them.
func Devices(root string) (all []Device) {
	for _, at := range []struct{ below, dir string }{{"/", "sysroot"}, {"/boot", "boot"}} {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(root, at.dir), &st); err != nil {
			continue
		}
		dev := fmt.Sprintf("dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
		for _, alias := range aliases(filepath.Join(root, "sys"), dev) {
			if !slices.ContainsFunc(all, func(d Device) bool { return d.Alias == alias }) {
				all = append(all, Device{Alias: alias, Below: at.below})
			}
		}
	}
	return all
}

// aliases returns those of the devices with a driver that a device below sys is part of, or made from.
func aliases(sys, device string) (all []string) {
	top, err := filepath.EvalSymlinks(sys)
	if err != nil {
		return nil
	}
	dir, err := filepath.EvalSymlinks(filepath.Join(top, device))
	for ; err == nil && strings.HasPrefix(dir, top+"/"); dir = filepath.Dir(dir) {
		parts, _ := filepath.Glob(filepath.Join(dir, "slaves/*"))
		for _, part := range parts {
			all = append(all, aliases(sys, strings.TrimPrefix(part, top))...)
		}
		if _, err := os.Readlink(filepath.Join(dir, "driver")); err != nil {
			continue
		}
		if alias, err := os.ReadFile(filepath.Join(dir, "modalias")); err == nil {
			all = append(all, strings.TrimSpace(string(alias)))
		}
	}
	return all
}
