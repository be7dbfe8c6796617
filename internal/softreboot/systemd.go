package softreboot

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// socket is systemd's private socket, which needs no message bus. Only root can use it.
const socket = "run/systemd/private"

// Of asks the systemd of the machine with a root directory for its Count. A machine on which no systemd listens has no
// soft reboots. For other users than root it asks on the message bus.
func Of(ctx context.Context, root string) (uint32, error) {
	file := filepath.Join(root, socket)
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	conn, err := systemd.NewConnection(func() (*dbus.Conn, error) { return dial(ctx, file) })
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return 0, nil
	case errors.Is(err, fs.ErrPermission):
		conn, err = systemd.NewSystemConnectionContext(ctx)
	}
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	return Count(conn.GetManagerProperty)
}

func dial(ctx context.Context, file string) (*dbus.Conn, error) {
	conn, err := dbus.Dial("unix:path="+file, dbus.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	if err := conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Getuid()))}); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}
