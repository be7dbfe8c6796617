package initramfs

import (
	"context"
	"fmt"

	"github.com/coreos/go-systemd/v22/dbus"
)

// handOver is a unit of Fedora CoreOS and RHCOS initramfs that is stopped before the system
// starts. When stopped, it writes the network settings and host name of a first boot into the
// system's /etc and takes the network down.
const handOver = "coreos-teardown-initramfs.service"

// KeepNetwork makes the initramfs write its network settings into the system's /etc now, if it
// has a unit that would do so before the system starts. A new deployment inherits /etc as it is
// at the commit, so settings that are written later, such as addresses from the kernel command
// line, would not reach it. The network may be down afterwards.
func (i *Initramfs) KeepNetwork(ctx context.Context) error {
	if !hasUnit(handOver) {
		return nil
	}
	if err := stopUnit(ctx, handOver, "replace"); err != nil {
		return deferred("cannot hand the network settings over to the system: %w", err)
	}
	return nil
}

// stopUnit stops a unit, if it is active, with a job of the given mode, and waits until it has stopped without failing.
func stopUnit(ctx context.Context, name, mode string) error {
	return withSystemd(ctx, stopTimeout, func(ctx context.Context, conn *dbus.Conn) error {
		if state, err := activeState(ctx, conn, name); err != nil || state != "active" {
			return err
		}
		done := make(chan string, 1)
		if _, err := conn.StopUnitContext(ctx, name, mode, done); err != nil {
			return fmt.Errorf("cannot stop %s: %w", name, err)
		}
		select {
		case <-done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		// The job is also done if a command of the unit failed.
		state, err := activeState(ctx, conn, name)
		if err == nil && state != "inactive" {
			err = fmt.Errorf("cannot stop %s: it is %s", name, state)
		}
		return err
	})
}
