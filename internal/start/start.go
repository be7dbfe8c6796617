// Package start identifies the starts of a machine's system. A boot starts a kernel, and that the system. A
// soft reboot (systemd-soft-reboot.service(8)) starts the system again under the same kernel, whose boot ID stays.
// And a first boot can enter the system that it has committed from the initramfs, in the boot that has committed it.
// So a boot ID says which kernel runs, and only a start's ID says which of its systems.
package start

import (
	"strconv"
	"strings"
)

// ID identifies one start of a system. It is the kernel's boot ID (/proc/sys/kernel/random/boot_id), and after the
// Nth soft reboot of that kernel BOOTID+N, N from 1. A system that was entered from the initramfs has BOOTID+entered until
// the first soft reboot. So an ordinary boot is identified by its boot ID alone. "" is
// unknown. Two IDs are equal if and only if they are of the same start.
type ID string

// BootIDFile has the kernel's boot ID.
const BootIDFile = "/proc/sys/kernel/random/boot_id"

// EnteredMark is the file that exists in a boot whose system was entered from the initramfs.
const EnteredMark = "/run/pivot/entered"

// entered is in the place of the number in the ID of a system that was entered.
const entered = "entered"

// separator is not in a boot ID, which is a UUID.
const separator = "+"

// Of returns the ID of the start of a kernel's system after the given number of soft reboots.
func Of(boot string, softReboots uint32) ID {
	if softReboots == 0 || boot == "" {
		return ID(boot)
	}
	return ID(boot + separator + strconv.FormatUint(uint64(softReboots), 10))
}

// Boot returns the boot ID of the kernel.
func (id ID) Boot() string {
	boot, _, _ := strings.Cut(string(id), separator)
	return boot
}

// IfEntered returns the ID of the start in a boot that has EnteredMark, given the one that Of returns.
func (id ID) IfEntered() ID {
	if id == "" || id.Soft() {
		return id
	}
	return id + separator + entered
}

// Entered reports whether the system was entered from the initramfs that has committed it.
func (id ID) Entered() bool { return strings.HasSuffix(string(id), separator+entered) }

// Soft reports whether the system was started by a soft reboot.
func (id ID) Soft() bool { return strings.Contains(string(id), separator) && !id.Entered() }
