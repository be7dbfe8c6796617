package main

import (
	"machine-pivot/internal/host"
	"machine-pivot/test/worlds/lab"
	"machine-pivot/test/worlds/vm"
)

// way is one way to do a first boot.
type way struct {
	name   string
	today  bool    // by podman and ostree, not by pivot
	fsync  bool    // with today's way: ostree makes the objects durable
	target float64 // the largest wall time that is wanted, relative to today's way with fsync; 0: none

	mode   host.Mode
	reboot host.RebootMethod // "": the default
}

// Names of the ways that others are compared with.
const (
	todayName    = "today"
	todayNoFsync = "today-no-fsync"
)

// ways returns all ways, today's first.
func ways() []way {
	return []way{
		{name: todayName, today: true, fsync: true},
		{name: todayNoFsync, today: true},
		{name: "pivot-system", mode: host.ModeSystem, target: 0.60},
		{name: "pivot-initramfs", mode: host.ModeInitramfs, target: 0.45},
		{name: "pivot-kexec", mode: host.ModeInitramfs, reboot: host.RebootKexec},
	}
}

// arguments are the kernel arguments of all boots of the way.
func (w way) arguments() []string {
	if w.today {
		return []string{"pivot.mode=off"}
	}
	return nil
}

// setup returns the machine before its first boot, without what the world adds.
func (w way) setup(layout vm.Layout) lab.Setup {
	s := lab.Setup{Layout: layout, Mode: w.mode, SizeMiB: diskMiB}
	if w.reboot != "" {
		s.KernelArgs = []string{"pivot.reboot-method=" + string(w.reboot)}
	}
	return s
}

// diskMiB is enough for three systems, and for what today's way stores of two images.
const diskMiB = 6 << 10
