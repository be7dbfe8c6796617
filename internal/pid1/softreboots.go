package pid1

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// SoftReboots returns the number of soft reboots of the running kernel. property reads a property of systemd's manager
// (org.freedesktop.systemd1(5)) as GVariant text. A systemd without the property SoftRebootsCount is older than any
// that libostree is used with for soft reboots, so there was none.
func SoftReboots(property func(name string) (string, error)) (uint32, error) {
	const name = "SoftRebootsCount"
	text, err := property(name)
	if failure, ok := errors.AsType[dbus.Error](err); ok && failure.Name == "org.freedesktop.DBus.Error.UnknownProperty" {
		return 0, nil
	}
	var count uint64
	if err == nil {
		count, err = strconv.ParseUint(strings.TrimPrefix(text, "@u "), 10, 32)
	}
	if err != nil {
		return 0, fmt.Errorf("cannot read systemd's %s: %w", name, err)
	}
	return uint32(count), nil
}

// SoftRebootsOf asks the systemd of the machine with a root directory for its SoftReboots. A machine on which no systemd
// listens has no soft reboots. For other users than root it asks on the message bus.
func SoftRebootsOf(ctx context.Context, root string) (uint32, error) {
	file := filepath.Join(root, Socket)
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	conn, err := Dial(ctx, file)
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
	return SoftReboots(conn.GetManagerProperty)
}
