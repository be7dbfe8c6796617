package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Watchdog says whether hardware resets the machine if its system hangs: a timer that systemd
// (RuntimeWatchdogSec in systemd-system.conf(5)), or another program, starts and then has to restart
// in time.
type Watchdog string

const (
	WatchdogArmed   Watchdog = "armed"   // a program has started one
	WatchdogIdle    Watchdog = "idle"    // there is one, and no program has started it
	WatchdogNone    Watchdog = "none"    // the kernel knows none
	WatchdogUnknown Watchdog = "unknown" // the kernel does not say (it lacks CONFIG_WATCHDOG_SYSFS)
)

// watchdogClass has a directory for each watchdog that the kernel knows
// (Documentation/ABI/testing/sysfs-class-watchdog).
const watchdogClass = "/sys/class/watchdog"

// softdog is the identity of the kernel's watchdog in software. It does not count: it stops with the
// kernel.
const softdog = "Software Watchdog"

// Watchdog returns the state of the machine's hardware watchdogs.
func (h *Host) Watchdog() (Watchdog, error) {
	entries, err := os.ReadDir(h.Path(watchdogClass))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return WatchdogUnknown, err
	}
	found := WatchdogNone
	for _, e := range entries {
		dir := filepath.Join(watchdogClass, e.Name())
		if identity, err := h.readLine(dir + "/identity"); err == nil && identity == softdog {
			continue
		}
		state, err := h.readLine(dir + "/state")
		switch {
		case err == nil && state == "active":
			return WatchdogArmed, nil
		case err != nil:
			found = WatchdogUnknown
		case found == WatchdogNone:
			found = WatchdogIdle
		}
	}
	return found, nil
}

// Lacking says what follows for a system that is entered only once; "" if its hang ends by itself, or
// if that is not known. It is a pure function.
func (w Watchdog) Lacking() string {
	var why string
	switch w {
	case WatchdogNone:
		why = "this machine has no hardware watchdog"
	case WatchdogIdle:
		why = "no program has started this machine's hardware watchdog (systemd does with RuntimeWatchdogSec=2min)"
	default:
		return ""
	}
	return why + ": a new system that hangs stays until somebody cycles the power"
}
