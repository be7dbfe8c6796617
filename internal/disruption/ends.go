package disruption

import (
	"slices"
	"strings"

	systemdunits "machine-pivot/systemd-units"
)

// Ends reports whether starting a unit ends the system, or restarting it restarts all services:
// then an action is not one of a change without a reboot. A unit may have other names, so ask
// about the one that systemd calls its Id. Source: systemd.special(7), of systemd 259.
func Ends(unit string) bool {
	name, isTarget := strings.CutSuffix(unit, ".target")
	if isTarget {
		switch name {
		case "emergency", "rescue", "factory-reset", "storage-target-mode", "system-update", // other modes of the system
			"ctrl-alt-del", "runlevel0", "runlevel1", "runlevel6", // other names
			"final", "shutdown", "umount", "sleep", // what the ways to end share
			"initrd-switch-root", "initrd-cleanup",
			"sysinit": // required by each service
			return true
		}
		return endings(name)
	}
	name, isService := strings.CutSuffix(unit, ".service")
	if isService {
		end, ofSystemd := strings.CutPrefix(name, "systemd-")
		return ofSystemd && endings(end) || name == "emergency" || name == "rescue" || name == "initrd-switch-root" || name == "initrd-cleanup"
	}
	return unit == "system.slice"
}

// endings reports whether a name is one of the ways to end or to suspend a system. Each is a target, and
// a service of systemd.
func endings(name string) bool {
	return slices.Contains([]string{"reboot", "soft-reboot", "kexec", "poweroff", "halt", "exit", "suspend", "hibernate", "hybrid-sleep", "suspend-then-hibernate"}, name)
}

// isOwn reports whether a unit is one of pivot's. A change of the running system that restarted one
// would wait for it while it waits for the change, or restart kubelet with it.
func isOwn(unit string) bool {
	return slices.Contains(systemdunits.Own(), unit)
}
