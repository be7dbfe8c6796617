package main

import (
	"slices"

	"machine-pivot/internal/settings"
	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/vm"
)

// way is one way to do a first boot.
type way struct {
	name    string
	today   bool // by podman and ostree, not by pivot
	fsync   bool // with today's way: ostree makes the objects durable
	targets []target

	mode     settings.Mode
	reboot   settings.RebootMethod // "": the default
	powerOns int                   // how often the machine is powered on if the way is taken
	enters   bool                  // the way only works if B has the kernel, the initramfs and the arguments of A
}

// target is the largest time that is wanted of a way, relative to that of another way.
type target struct {
	Than string  `json:"than"` // the other way
	Of   part    `json:"of"`
	Most float64 `json:"most"` // the way's time divided by the other one's
}

// part is a part of a first boot that targets are for.
type part string

const (
	whole  part = "power-on to kubelet"
	latter part = "commit to kubelet"
)

// times returns the wall time and the processor time of a part, in seconds.
func (p part) times(s sample) (wall, cpu float64) {
	if p == latter {
		return s.LatterWall, s.LatterCPU
	}
	return s.Wall, s.CPU
}

// Names of the ways that others are compared with.
const (
	todayName    = "today"
	todayNoFsync = "today-no-fsync"
	rebootName   = "pivot-initramfs"
	kexecName    = "pivot-kexec"
	enterName    = "pivot-enter"
)

// ways returns all ways, today's first.
func ways() []way {
	return []way{
		{name: todayName, today: true, fsync: true, powerOns: 2},
		{name: todayNoFsync, today: true, powerOns: 2},
		{name: "pivot-system", mode: settings.ModeSystem, powerOns: 2, targets: []target{{todayName, whole, 0.60}}},
		{name: rebootName, mode: settings.ModeInitramfs, powerOns: 2, targets: []target{{todayName, whole, 0.45}}},
		{name: kexecName, mode: settings.ModeInitramfs, reboot: settings.RebootKexec, powerOns: 1},
		{name: enterName, mode: settings.ModeInitramfs, reboot: settings.RebootEnter, enters: true, powerOns: 1,
			targets: []target{{todayName, whole, 0.35}, {rebootName, whole, 0.80}, {rebootName, latter, 0.60}}},
	}
}

// usual returns the ways that are measured if none are named: those that work with any B, and in a box if inBox.
func usual(all []way, inBox bool) []way {
	return slices.DeleteFunc(slices.Clone(all), func(w way) bool { return w.enters || inBox && !w.boxed() })
}

// boxed reports whether a way needs neither the kernel nor the initramfs of the guest.
func (w way) boxed() bool { return w.today || w.mode == settings.ModeSystem }

// sameKernel reports whether B has the kernel and the initramfs of A, and A its kernel arguments: if one of the ways
// enters B. The others then go the same way.
func sameKernel(ways []way) bool {
	return slices.ContainsFunc(ways, func(w way) bool { return w.enters })
}

// arguments are the kernel arguments of all boots of the way.
func (w way) arguments() []string {
	if w.today {
		return []string{"pivot.mode=off"}
	}
	return nil
}

// setup returns the machine before its first boot, without what the world adds.
func (w way) setup(layout vm.Layout) bootlab.Setup {
	s := bootlab.Setup{Layout: layout, Mode: w.mode, SizeMiB: diskMiB}
	if w.reboot != "" {
		s.KernelArgs = append(s.KernelArgs, "pivot.reboot-method="+string(w.reboot))
	}
	return s
}

// diskMiB is enough for three systems, and for what today's way stores of two images.
const diskMiB = 6 << 10
