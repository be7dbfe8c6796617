// Package softreboot asks systemd about soft reboots (systemd-soft-reboot.service(8)).
package softreboot

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/godbus/dbus/v5"
)

// Count returns the number of soft reboots of the running kernel. property reads a property of systemd's manager
// (org.freedesktop.systemd1(5)) as GVariant text. A systemd without the property SoftRebootsCount is older than any
// that libostree is used with for soft reboots, so there was none.
func Count(property func(name string) (string, error)) (uint32, error) {
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
