// Package initramfs is what a first boot needs there: after the root file system is
// mounted and Ignition has written its files, before the system starts.
//
// The program itself stays outside of the new root, with the initramfs's network
// configuration; only the system's own tools run inside (host.RunIn). All mounts
// are made in a mount namespace of the program's own, so that a kill leaves none
// behind and nobody else sees them.
//
// What fails here is of kind fault.Later: the started system can do it all.
//
// Sources: systemd's bootup(7) and initrd interface, ostree-prepare-root(1),
// dracut.cmdline(7), and for Fedora CoreOS the units of its dracut modules.
package initramfs

import (
	"os"
	"path/filepath"

	"machine-pivot/internal/fault"
)

// releaseFile is in each initramfs of systemd's and nowhere else (os-release(5)).
const releaseFile = "/etc/initrd-release"

// Here reports whether the program runs in an initramfs and root is the root of
// the system that is about to start.
func Here(root string) bool {
	_, err := os.Stat(releaseFile)
	return err == nil && filepath.Clean(root) != "/"
}

// Initramfs is the initramfs in front of one system.
type Initramfs struct {
	Root string // of the system, as "/sysroot"
	// Run runs a program of the initramfs.
	Run func(argv ...string) error
}

// New is the initramfs that the program runs in.
func New(root string) *Initramfs { return &Initramfs{Root: root, Run: run} }

// path is a path of the system.
func (i *Initramfs) path(name string) string { return filepath.Join(i.Root, name) }

// later is a failure that the started system will not have.
func later(format string, args ...any) error {
	return fault.New(fault.Later, format, args...)
}
