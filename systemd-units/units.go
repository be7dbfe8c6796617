// Package systemdunits embeds the files in this directory: the units that start pivot
// on a machine, and the drop-ins that make other units wait for it.
package systemdunits

import "embed"

// Program is the path of the program in the units.
const Program = "/usr/bin/pivot"

// The units, which are pivot's own.
const (
	FirstBoot      = "pivot-firstboot.service"   // runs a first boot
	Live           = "pivot-live.service"        // ends a change of the running system that was interrupted
	NICNames       = "pivot-nic-names.service"   // pins the names of network interfaces before a first boot
	Project        = "pivot-project.service"     // projects entries outside of /etc during boot
	Slot           = "pivot-slot.service"        // releases a FleetLock slot
	StaticPods     = "pivot-static-pods.service" // writes static pods
	StaticPodsPath = "pivot-static-pods.path"    // starts StaticPods
	Trial          = "pivot-trial.service"       // conducts a trial in the new system, and closes it in the old one
	Upgrade        = "pivot-upgrade.service"     // moves to the image that the followed tag names now
	UpgradeTimer   = "pivot-upgrade.timer"       // starts Upgrade where an administrator enables it
)

// Own returns the names of all these units.
func Own() []string {
	return []string{FirstBoot, Live, NICNames, Project, Slot, StaticPods, StaticPodsPath, Trial, Upgrade, UpgradeTimer}
}

// Files holds the units, and the drop-ins in a directory for each unit that they
// extend.
//
//go:embed *.service *.path *.timer *.d/*.conf
var Files embed.FS
