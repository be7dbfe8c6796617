package host

import (
	"context"
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/systemdbus"
)

// busTimeout limits calls to logind and systemd, which normally answer at once.
const busTimeout = 10 * time.Second

// bus is how a systemd is reached, and for how long at most.
type bus struct {
	socket string
	limit  time.Duration
}

// systemd connects to the running systemd, for at most busTimeout.
func systemd(ctx context.Context) (conn *dbus.Conn, done func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	if conn, err = systemdbus.Dial(ctx, systemdbus.Socket); err != nil {
		cancel()
		return nil, nil, err
	}
	return conn, func() { conn.Close(); cancel() }, nil
}

// startTarget starts a target that ends this boot.
func startTarget(ctx context.Context, target string) error {
	return bus{systemdbus.Socket, busTimeout}.startTarget(ctx, target)
}

// startTarget is startTarget for a given systemd. One that does not answer in time is a transient failure: it may be busy,
// and to start the target again does no harm.
func (b bus) startTarget(ctx context.Context, target string) error {
	bounded, cancel := context.WithTimeoutCause(ctx, b.limit, fault.New(fault.Unavailable, "systemd does not answer within %s", b.limit))
	defer cancel()
	conn, err := systemdbus.Dial(bounded, b.socket)
	if err != nil {
		return fmt.Errorf("cannot reboot: cannot reach systemd: %w", err)
	}
	defer conn.Close()
	// As systemctl reboot does: no later job may cancel it.
	_, err = conn.StartUnitContext(bounded, target, "replace-irreversibly", nil)
	if err != nil && bounded.Err() != nil {
		err = context.Cause(bounded)
	}
	if err != nil {
		return fmt.Errorf("cannot reboot: cannot start %s: %w", target, err)
	}
	return nil
}
