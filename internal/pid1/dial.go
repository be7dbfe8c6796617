package pid1

import (
	"context"
	"errors"
	"os"
	"strconv"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// Socket is the private socket of the running systemd. It needs no message bus, which may not run this early. Only
// root can use it.
const Socket = "/run/systemd/private"

// Dial connects to the systemd that listens on a socket. The connection ends with ctx. That is the cause of any later
// error.
func Dial(ctx context.Context, socket string) (*systemd.Conn, error) {
	conn, err := systemd.NewConnection(func() (*dbus.Conn, error) {
		conn, err := dbus.Dial("unix:path="+socket, dbus.WithContext(ctx))
		if err != nil {
			return nil, err
		}
		if err := conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Getuid()))}); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return conn, nil
	})
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return conn, err
}
