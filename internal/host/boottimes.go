package host

import (
	"context"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"machine-pivot/pivot"
)

// BootTimes returns the timestamps of the kernel and systemd for this start. For a machine that
// is not the running one, it returns a Boot without an ID. Timestamps that systemd does not
// have, such as the firmware's without UEFI, are 0.
func (h *Host) BootTimes(ctx context.Context) pivot.Boot {
	if !h.Runs() {
		return pivot.Boot{}
	}
	id, err := h.Start()
	if err != nil {
		return pivot.Boot{}
	}
	// systemd's timestamps use the same clock.
	var since unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &since); err != nil {
		return pivot.Boot{}
	}
	boot := pivot.Boot{ID: id, Kernel: time.Now().UTC().Add(-time.Duration(since.Nano()))}
	if id.Soft() { // systemd keeps the times of the boot
		return boot
	}
	conn, done, err := systemd(ctx)
	if err != nil {
		return boot
	}
	defer done()
	addStamps(&boot, func(name string) string {
		value, err := conn.GetManagerProperty(name)
		if err != nil {
			return ""
		}
		return value
	})
	return boot
}

// UnitTimes returns when units of the running machine became active, by unit name, in seconds
// after the kernel's start. Units that are not active have no entry.
func UnitTimes(ctx context.Context, names ...string) map[string]float64 {
	times := map[string]float64{}
	conn, done, err := systemd(ctx)
	if err != nil {
		return times
	}
	defer done()
	for _, name := range names {
		property, err := conn.GetUnitPropertyContext(ctx, name, "ActiveEnterTimestampMonotonic")
		if err != nil {
			continue
		}
		if usec, ok := property.Value.Value().(uint64); ok && usec > 0 {
			times[name] = float64(usec/1000) / 1000
		}
	}
	return times
}

// addStamps sets the timestamps from properties of systemd's manager
// (org.freedesktop.systemd1(5)): in microseconds, for firmware and loader before the kernel's
// start, for all others after it. Each is text, such as "@t 1200000".
func addStamps(boot *pivot.Boot, property func(name string) string) {
	stamp := func(name string) float64 {
		usec, err := strconv.ParseInt(strings.TrimPrefix(property(name+"TimestampMonotonic"), "@t "), 10, 64)
		if err != nil {
			return 0
		}
		return float64(usec/1000) / 1000
	}
	loader := stamp("Loader")
	boot.Firmware = max(0, stamp("Firmware")-loader)
	boot.Loader = loader
	boot.Initramfs = stamp("InitRD")
	// In an initramfs both are equal: the system has not started.
	if system := stamp("Userspace"); system != boot.Initramfs {
		boot.System = system
	}
}
