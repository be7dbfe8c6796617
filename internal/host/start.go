package host

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/pid1"
)

// Start returns the ID of the start of the running system.
func (h *Host) Start() (pid1.StartID, error) {
	boot, err := h.readLine(pid1.BootIDFile)
	if err != nil {
		return "", err
	}
	count, err := h.SoftReboots()
	if err != nil {
		return "", err
	}
	id, err := pid1.RunningStart(boot, count, h.Path(pid1.EnteredMark))
	if err != nil {
		return "", fmt.Errorf("cannot observe the host: %w", err)
	}
	return id, nil
}

// softReboots asks systemd, for a machine that is the running one; others have no soft reboots.
func (h *Host) softReboots() (uint32, error) {
	if !h.Runs() {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), busTimeout)
	defer cancel()
	count, err := pid1.SoftRebootsOf(ctx, h.Root)
	if err != nil {
		return 0, fault.New(fault.Unavailable, "cannot observe the host: cannot ask systemd for its soft reboots: %w", err)
	}
	return count, nil
}

// uptime returns the time since the running kernel started.
func uptime() (time.Duration, error) {
	var since unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &since); err != nil {
		return 0, fmt.Errorf("cannot observe the host: %w", err)
	}
	return time.Duration(since.Nano()), nil
}

// Runs reports whether the machine is the one that this program runs on, and not the files of
// another.
func (h *Host) Runs() bool {
	running, err := os.ReadFile(pid1.BootIDFile)
	id, err2 := h.readLine(pid1.BootIDFile)
	return err == nil && err2 == nil && strings.TrimSpace(string(running)) == id
}
