package host

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// uptime returns the time since the running kernel started.
func uptime() (time.Duration, error) {
	var since unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &since); err != nil {
		return 0, fmt.Errorf("cannot observe the host: %w", err)
	}
	return time.Duration(since.Nano()), nil
}

// UnitState returns the state of a unit, such as "active" or "failed" (systemctl(1)).
func (h *Host) UnitState(ctx context.Context, name string) (string, error) {
	out, err := h.Run(ctx, "systemctl", "show", "--property=ActiveState", "--value", "--", name)
	return strings.TrimSpace(string(out)), err
}

// Unhealthy returns a message for each unit in the setting "health" that is not active, and for
// settings or states that cannot be read.
func (h *Host) Unhealthy(ctx context.Context) (lacks []string) {
	settings, err := h.Settings()
	if err != nil {
		lacks = append(lacks, err.Error())
	}
	for _, unit := range settings.Health {
		if state, err := h.UnitState(ctx, unit); err != nil || state != "active" {
			lacks = append(lacks, fmt.Sprintf("unit %s is %s", unit, cmp.Or(state, "of an unknown state")))
		}
	}
	return lacks
}
