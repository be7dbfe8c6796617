// Package initramfs does what a first boot needs in an initramfs. It runs after the root file
// system is mounted and Ignition has written its files, and before the system starts.
//
// The program stays outside of the new root, where it uses the initramfs's network
// configuration; only the system's tools run inside (host.RunIn). All mounts are made in a
// private mount namespace, so that a killed process leaves none behind and no other process
// sees them.
//
// Errors have the kind fault.Later, because the started system can do the same work. Those of a Way have not: it leads
// the initramfs into the committed deployment.
//
// Sources: systemd's bootup(7) and initrd interface, ostree-prepare-root(1), dracut.cmdline(7),
// and for Fedora CoreOS the units of its dracut modules.
package initramfs

import (
	"os"
	"path/filepath"

	"machine-pivot/internal/fault"
)

// releaseFile exists in an initramfs with systemd, and nowhere else (os-release(5)).
const releaseFile = "/etc/initrd-release"

// Here reports whether the program runs in an initramfs and root, the root directory of the
// system that is about to start, is not "/".
func Here(root string) bool {
	_, err := os.Stat(releaseFile)
	return err == nil && filepath.Clean(root) != "/"
}

// Initramfs is an initramfs and the system that it is about to start.
type Initramfs struct {
	Root string // of the system, such as "/sysroot"
	// Run runs a program of the initramfs.
	Run func(argv ...string) error
}

// New returns the initramfs that the program runs in.
func New(root string) *Initramfs { return &Initramfs{Root: root, Run: run} }

// path returns a path in the system.
func (i *Initramfs) path(name string) string { return filepath.Join(i.Root, name) }

// deferred returns an error for work that is left to the started system.
func deferred(format string, args ...any) error {
	return fault.New(fault.Later, format, args...)
}
