package host

import (
	"context"
	"fmt"

	"github.com/coreos/go-systemd/v22/dbus"
)

// reboot asks systemd for an orderly reboot and returns once it is accepted.
// While somebody blocks a shutdown it fails, for as long.
func reboot(ctx context.Context) error {
	if err := blocked(ctx); err != nil {
		return err
	}
	// systemd's private socket: the message bus may not be up this early.
	conn, err := dbus.NewSystemdConnectionContext(ctx)
	if err != nil {
		return fmt.Errorf("cannot reboot: cannot reach systemd: %w", err)
	}
	defer conn.Close()
	// What systemctl reboot does: no later job may cancel it.
	if _, err := conn.StartUnitContext(ctx, "reboot.target", "replace-irreversibly", nil); err != nil {
		return fmt.Errorf("cannot reboot: %w", err)
	}
	return nil
}
