package initramfs

import (
	"context"
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"

	"machine-pivot/internal/pid1"
)

// Limits of a question to systemd, which normally answers at once, and of stopping a unit. The unit's own limit is
// systemd's default of 90 s.
const (
	answerTimeout = 10 * time.Second
	stopTimeout   = 2 * time.Minute
)

// withSystemd calls do with a connection to the systemd of the initramfs, and the time limit for both.
func withSystemd(ctx context.Context, limit time.Duration, do func(context.Context, *dbus.Conn) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("systemd does not answer within %s", limit))
	defer cancel()
	conn, err := pid1.Dial(ctx, pid1.Socket)
	if err != nil {
		err = fmt.Errorf("cannot reach systemd: %w", err)
	} else {
		defer conn.Close()
		err = do(ctx, conn)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // the connection ends with the context
	}
	return err
}

func activeState(ctx context.Context, conn *dbus.Conn, unit string) (string, error) {
	property, err := conn.GetUnitPropertyContext(ctx, unit, "ActiveState")
	if err != nil {
		return "", fmt.Errorf("cannot look at %s: %w", unit, err)
	}
	state, ok := property.Value.Value().(string)
	if !ok {
		return "", fmt.Errorf("cannot look at %s: systemd has no state for it", unit)
	}
	return state, nil
}
