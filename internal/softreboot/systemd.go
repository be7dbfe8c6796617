package softreboot

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"golang.org/x/sys/unix"

	"machine-pivot/internal/systemdbus"
)

// Of asks the systemd of the machine with a root directory for its Count. A machine on which no systemd listens has no
// soft reboots. For other users than root it asks on the message bus.
func Of(ctx context.Context, root string) (uint32, error) {
	file := filepath.Join(root, systemdbus.Socket)
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	conn, err := systemdbus.Dial(ctx, file)
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
