// Package vm boots complete systems in QEMU for tests and demonstrations.
//
// A Guest is an operating system in two versions, A and its successor B, as
// ostree commits; it is built once and cached. A disk is a sparse file with A (or
// B) deployed. A Machine has a disk and can be powered on. The package acts as the
// boot loader: it reads the default boot entry from the disk and starts QEMU
// with that kernel. So each run of QEMU is exactly one boot, unless the guest uses kexec.
//
// The README in this directory has costs, on two processors without hardware
// virtualization.
package vm

import (
	"os"
	"os/exec"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// Missing returns what this host lacks to build and boot guests; nothing if it
// can. Some disk layouts need more: see Layout.Missing.
func Missing() []string { return append(MissingToBoot(), MissingToBuild()...) }

// MissingToBoot returns what this host lacks to boot guests in QEMU; nothing if it can.
func MissingToBoot() []string { return lacking("qemu-system-x86_64") }

// MissingToBuild returns what this host lacks to build guests and their disks; nothing if it can.
func MissingToBuild() []string {
	tools := lacking("mmdebstrap", "ostree", "mkfs.ext4", "e2fsck", "chattr", "tar", "bash")
	return append(tools, lackingToMount()...)
}

// lacking returns those of the tools that are not installed.
func lacking(tools ...string) []string {
	return slices.DeleteFunc(tools, func(tool string) bool {
		_, err := exec.LookPath(tool)
		return err == nil
	})
}

// lackingToMount returns what this process lacks to mount a disk.
func lackingToMount() (missing []string) {
	if unix.Geteuid() != 0 {
		return []string{"root"}
	}
	if !canMount() {
		missing = append(missing, "the privilege to mount (CAP_SYS_ADMIN)")
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		missing = append(missing, "loop devices")
	}
	return missing
}

// canMount reports whether this process can create a mount namespace. In some containers not even
// root can.
func canMount() bool {
	cmd := exec.Command("true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	return cmd.Run() == nil
}
