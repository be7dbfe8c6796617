package rpmostree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/godbus/dbus/v5"
)

// systemBus is the socket of the message bus.
const systemBus = "/run/dbus/system_bus_socket"

// daemonReachable reports whether the host has a message bus, so that the daemon can probably be asked.
func daemonReachable(root string) bool {
	_, err := os.Stat(filepath.Join(root, systemBus))
	return err == nil
}

// dialBus connects to the system's message bus.
func dialBus(ctx context.Context, root string) (*dbus.Conn, error) {
	return dial(ctx, root, "unix:path="+systemBus, (*dbus.Conn).Hello)
}

// dialTransaction connects to the daemon itself, at the address that it has given for a
// transaction. There is no bus in between.
func dialTransaction(ctx context.Context, root, address string) (*dbus.Conn, error) {
	return dial(ctx, root, address, func(*dbus.Conn) error { return nil })
}

// dial connects to an address of the host with a root directory, and calls hello. The connection
// outlives ctx.
func dial(ctx context.Context, root, address string, hello func(*dbus.Conn) error) (*dbus.Conn, error) {
	address, done, err := socketBelow(root, address)
	if err != nil {
		return nil, err
	}
	defer done()
	conn, err := dbus.Dial(address, dbus.WithSignalHandler(dbus.NewSequentialSignalHandler()))
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	err = conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Getuid()))})
	if err == nil {
		err = hello(conn)
	}
	if !stop() {
		err = errors.Join(ctx.Err(), err)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// socketBelow returns an address for a socket in the root directory's file system. It names the socket's
// directory by a descriptor, since the path of a socket has at most 107 bytes (unix(7)); done
// closes it. Addresses without a path are left as they are.
func socketBelow(root, address string) (_ string, done func(), err error) {
	path, ok := strings.CutPrefix(address, "unix:path=")
	if !ok {
		return address, func() {}, nil
	}
	path, _, _ = strings.Cut(path, ",")
	dir, err := os.Open(filepath.Join(root, filepath.Dir(path)))
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("unix:path=/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)), func() { _ = dir.Close() }, nil
}
