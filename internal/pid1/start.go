// Package pid1 identifies the starts of the running system, and asks its systemd.
package pid1

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// StartID identifies one start of a system. A boot starts a kernel, and that the system. A soft reboot
// (systemd-soft-reboot.service(8)) starts the system again under the same kernel, and its boot ID stays. A first boot
// can enter the system that it has committed from the initramfs, in the same boot. So a boot ID identifies only the
// kernel's start.
//
// It is the kernel's boot ID (/proc/sys/kernel/random/boot_id), and after the
// Nth soft reboot of that kernel BOOTID+N, N from 1. A system that was entered from the initramfs has BOOTID+entered until
// the first soft reboot. So an ordinary boot is identified by its boot ID alone. "" is
// unknown. Two IDs are equal if and only if they are of the same start.
type StartID string

// BootIDFile has the kernel's boot ID.
const BootIDFile = "/proc/sys/kernel/random/boot_id"

// EnteredMark is the file that exists if the system was entered from the initramfs in this boot.
const EnteredMark = "/run/pivot/entered"

// entered is in the place of the number in the ID of a system that was entered.
const startEntered = "entered"

// separator is not in a boot ID, which is a UUID.
const startSeparator = "+"

// StartAfter returns the ID of the start of a kernel's system after the given number of soft reboots.
func StartAfter(boot string, softReboots uint32) StartID {
	if softReboots == 0 || boot == "" {
		return StartID(boot)
	}
	return StartID(boot + startSeparator + strconv.FormatUint(uint64(softReboots), 10))
}

// Boot returns the boot ID of the kernel.
func (id StartID) Boot() string {
	boot, _, _ := strings.Cut(string(id), startSeparator)
	return boot
}

// IfEntered returns the ID of the start in a boot that has EnteredMark, given the one that Of returns.
func (id StartID) IfEntered() StartID {
	if id == "" || id.Soft() {
		return id
	}
	return id + startSeparator + startEntered
}

// Entered reports whether the system was entered from the initramfs that has committed it.
func (id StartID) Entered() bool { return strings.HasSuffix(string(id), startSeparator+startEntered) }

// Soft reports whether the system was started by a soft reboot.
func (id StartID) Soft() bool { return strings.Contains(string(id), startSeparator) && !id.Entered() }

// RunningStart returns the ID of the start of the system that runs: that of a kernel with a boot ID, after a count of soft
// reboots. mark is the path of the host's EnteredMark for this process.
func RunningStart(boot string, count uint32, mark string) (StartID, error) {
	id := StartAfter(boot, count)
	switch _, err := os.Lstat(mark); {
	case err == nil:
		return id.IfEntered(), nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR): // somebody has made a file in the place of its directory
		return id, nil
	default:
		return "", fmt.Errorf("cannot tell whether the system was entered without a reboot: %w", err)
	}
}
