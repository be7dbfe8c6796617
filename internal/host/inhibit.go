package host

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/godbus/dbus/v5"

	"machine-pivot/internal/fault"
)

// inhibitor is an inhibitor lock of logind (org.freedesktop.login1(5), ListInhibitors).
type inhibitor struct {
	What string // what is inhibited, such as "shutdown:sleep"
	Who  string
	Why  string
	Mode string // block or delay
	UID  uint32
	PID  uint32
}

// blocked returns a transient error while an inhibitor lock blocks shutdown, as rpm-ostree does
// before a reboot: systemd itself lets root shut down regardless. Without a bus or a running
// logind there are no such locks.
func blocked(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	defer cancel()
	conn, err := dbus.ConnectSystemBus(dbus.WithContext(ctx))
	if err != nil {
		return nil
	}
	defer conn.Close()
	return blockedBy(ctx, conn)
}

func blockedBy(ctx context.Context, bus *dbus.Conn) error {
	var all []inhibitor
	logind := bus.Object("org.freedesktop.login1", "/org/freedesktop/login1")
	// Do not start logind: if it is not running, there are no locks.
	err := logind.CallWithContext(ctx, "org.freedesktop.login1.Manager.ListInhibitors", dbus.FlagNoAutoStart).Store(&all)
	if err != nil {
		return nil
	}
	var holders []string
	for _, i := range all {
		if i.Mode == "block" && slices.Contains(strings.Split(i.What, ":"), "shutdown") {
			holders = append(holders, fmt.Sprintf("%s (process %d): %s", i.Who, i.PID, i.Why))
		}
	}
	if len(holders) == 0 {
		return nil
	}
	return fault.New(fault.Unavailable, "cannot reboot: blocked by %s", strings.Join(holders, "; ")).
		WithHint("see systemd-inhibit --list; the reboot is asked for again while pivot waits")
}
