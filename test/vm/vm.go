// Package vm boots real machines in QEMU for tests and demonstrations.
//
// A Guest is an operating system in two versions, A and its successor B, as
// ostree commits; it is built once and cached. A disk is a sparse file with A (or
// B) deployed. A Machine has a disk and can be powered on. The package plays the
// boot loader: it reads the default boot entry from the disk and starts QEMU
// with that kernel, so that each end of QEMU is the end of one boot and can be
// counted.
//
// Costs on two processors without hardware virtualisation are in the README
// beside this file.
package vm

import (
	"os"
	"os/exec"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// Missing names what this machine lacks to build and boot guests; none if it
// can. Some layouts of disks want more: see Layout.Missing.
func Missing() []string {
	tools := lacking("qemu-system-x86_64", "mmdebstrap", "ostree", "mkfs.ext4", "e2fsck", "chattr", "tar", "bash")
	return append(tools, lackingToMount()...)
}

// lacking are those of the tools that are not installed.
func lacking(tools ...string) []string {
	return slices.DeleteFunc(tools, func(tool string) bool {
		_, err := exec.LookPath(tool)
		return err == nil
	})
}

// lackingToMount names what this process lacks to mount a disk.
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

// canMount reports whether a process may have a mount namespace of its own. In
// some containers not even root may.
func canMount() bool {
	cmd := exec.Command("true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	return cmd.Run() == nil
}
