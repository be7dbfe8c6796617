package host

import (
	"context"
	"errors"
	"io/fs"

	"github.com/coreos/go-systemd/v22/dbus"
	"golang.org/x/sys/unix"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/softreboot"
	"machine-pivot/internal/start"
)

// bootIDFile has the ID of the running kernel's boot.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// Start returns the ID of the start of the running system.
func (h *Host) Start() (start.ID, error) {
	boot, err := h.readLine(bootIDFile)
	if err != nil {
		return "", err
	}
	count, err := h.SoftReboots()
	if err != nil {
		return "", err
	}
	id := start.Of(boot, count)
	entered, err := h.Has(start.EnteredMark)
	if entered {
		id = id.IfEntered()
	}
	return id, err
}

// softReboots asks systemd, for a machine that is the running one; others have no soft reboots. A machine on which
// no systemd listens has none either.
func (h *Host) softReboots() (uint32, error) {
	if !h.Runs() {
		return 0, nil
	}
	conn, done, err := askSystemd(context.Background())
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		return 0, nil
	}
	var count uint32
	if err == nil {
		defer done()
		count, err = softreboot.Count(conn.GetManagerProperty)
	}
	if err != nil {
		return 0, fault.New(fault.Unavailable, "cannot observe the host: cannot ask systemd for its soft reboots: %w", err)
	}
	return count, nil
}

// askSystemd is systemd, also for a user other than root, who cannot use the private socket.
func askSystemd(ctx context.Context) (conn *dbus.Conn, done func(), err error) {
	conn, done, err = systemd(ctx)
	if !errors.Is(err, fs.ErrPermission) {
		return conn, done, err
	}
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	if conn, err = dbus.NewSystemConnectionContext(ctx); err != nil {
		cancel()
		return nil, nil, err
	}
	return conn, func() { conn.Close(); cancel() }, nil
}
