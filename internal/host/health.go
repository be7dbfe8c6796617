package host

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// uptime is how long ago the running kernel started.
func uptime() (time.Duration, error) {
	var since unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &since); err != nil {
		return 0, fmt.Errorf("cannot observe the host: %w", err)
	}
	return time.Duration(since.Nano()), nil
}

// UnitState is the state of a unit, as "active" or "failed" (systemctl(1)).
func (h *Host) UnitState(ctx context.Context, name string) (string, error) {
	out, err := h.Run(ctx, "systemctl", "show", "--property=ActiveState", "--value", "--", name)
	return strings.TrimSpace(string(out)), err
}
