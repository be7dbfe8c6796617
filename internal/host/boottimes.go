package host

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	"golang.org/x/sys/unix"

	"machine-pivot/pivot"
)

// BootTimes is what the kernel and systemd know of how this boot came up. A machine
// that is not the running one has none: its Boot has no ID. What systemd does not tell,
// as the firmware's time without UEFI, is 0.
func (h *Host) BootTimes(ctx context.Context) pivot.Boot {
	id, err := h.BootID()
	if err != nil || !h.Runs() {
		return pivot.Boot{}
	}
	// systemd's stamps are of this clock too.
	var since unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &since); err != nil {
		return pivot.Boot{}
	}
	boot := pivot.Boot{ID: id, Kernel: time.Now().UTC().Add(-time.Duration(since.Nano()))}
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

// systemd asks the running systemd, for a bounded time. Its private socket: the message bus
// may not be up this early.
func systemd(ctx context.Context) (conn *dbus.Conn, done func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	if conn, err = dbus.NewSystemdConnectionContext(ctx); err != nil {
		cancel()
		return nil, nil, err
	}
	return conn, func() { conn.Close(); cancel() }, nil
}

// UnitTimes is when units of the running machine became active: seconds after the
// kernel's start, by their names. Those that are not active have none.
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

// addStamps adds what the properties of systemd's manager say (org.freedesktop.systemd1(5)):
// microseconds, for firmware and loader before the kernel's start, else after it. Each is
// text as "@t 1200000".
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
	// In an initramfs this one is the same: the system has not started.
	if system := stamp("Userspace"); system != boot.Initramfs {
		boot.System = system
	}
}
