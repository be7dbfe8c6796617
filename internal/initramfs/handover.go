package initramfs

import (
	"context"
	"fmt"
	"path"
	"reflect"

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
//
// What the unit's file orders after it is stopped before it, as on the way out of the initramfs. systemd keeps that
// order only between units that it stops together. With some files this is NetworkManager, and the unit then removes
// its state; others are ordered after NetworkManager and need one that runs. Besides, it is a stage of Ignition that
// unmounts, and reports that over the network.
func (i *Initramfs) KeepNetwork(ctx context.Context) error {
	if !hasUnit(handOver) {
		return nil
	}
	err := withSystemd(ctx, stopTimeout, func(ctx context.Context, conn *dbus.Conn) error {
		return stopLast(ctx, conn, handOver)
	})
	if err != nil {
		return deferred("cannot hand the network settings over to the system: %w", err)
	}
	return nil
}

// stopLast stops a unit, if it is active, after the services that are ordered after it and do something when they stop.
// What requires those continues: that would be the whole boot.
func stopLast(ctx context.Context, conn *dbus.Conn, unit string) error {
	if state, err := activeState(ctx, conn, unit); err != nil || state != "active" {
		return err
	}
	property, err := conn.GetUnitPropertyContext(ctx, unit, "Before")
	if err != nil {
		return fmt.Errorf("cannot look at %s: %w", unit, err)
	}
	later, _ := property.Value.Value().([]string)
	for _, name := range later {
		does, err := stopsSomething(ctx, conn, name)
		if err == nil && does {
			err = stopOne(ctx, conn, name, "ignore-requirements")
		}
		if err != nil {
			return err
		}
	}
	return stopOne(ctx, conn, unit, "replace")
}

// stopsSomething reports whether a unit is a service that has a process, or runs a command when it is stopped.
func stopsSomething(ctx context.Context, conn *dbus.Conn, unit string) (bool, error) {
	if path.Ext(unit) != ".service" {
		return false, nil
	}
	properties, err := conn.GetUnitTypePropertiesContext(ctx, unit, "Service")
	if err != nil {
		return false, fmt.Errorf("cannot look at %s: %w", unit, err)
	}
	process, _ := properties["MainPID"].(uint32)
	commands := reflect.ValueOf(properties["ExecStop"])
	return process != 0 || commands.Kind() == reflect.Slice && commands.Len() > 0, nil
}

// stopUnit stops a unit, if it is active, with a job of the given mode, and waits until it has stopped without failing.
func stopUnit(ctx context.Context, name, mode string) error {
	return withSystemd(ctx, stopTimeout, func(ctx context.Context, conn *dbus.Conn) error {
		return stopOne(ctx, conn, name, mode)
	})
}

// stopOne is stopUnit on a connection.
func stopOne(ctx context.Context, conn *dbus.Conn, name, mode string) error {
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
}
