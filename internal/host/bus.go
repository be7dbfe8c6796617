package host

import (
	"context"
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/pid1"
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
	if conn, err = pid1.Dial(ctx, pid1.Socket); err != nil {
		cancel()
		return nil, nil, err
	}
	return conn, func() { conn.Close(); cancel() }, nil
}

// startTarget starts a target that ends this boot.
func startTarget(ctx context.Context, target string) error {
	return bus{pid1.Socket, busTimeout}.startTarget(ctx, target)
}

// startTarget is startTarget for a given systemd. One that does not answer in time is a transient failure: it may be
// busy, and to start the target again does no harm. The answer to the request is awaited also if ctx ends meanwhile:
// systemd may be stopping this program because of the request.
func (b bus) startTarget(ctx context.Context, target string) error {
	late := fault.New(fault.Unavailable, "systemd does not answer within %s", b.limit)
	bounded, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), b.limit, late)
	defer cancel()
	bounded, giveUp := context.WithCancelCause(bounded)
	until := context.AfterFunc(ctx, func() { giveUp(context.Cause(ctx)) })
	conn, err := pid1.Dial(bounded, b.socket)
	if err != nil {
		return fmt.Errorf("cannot reboot: cannot reach systemd: %w", err)
	}
	defer conn.Close()
	if !until() {
		return fmt.Errorf("cannot reboot: %w", context.Cause(ctx))
	}
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
