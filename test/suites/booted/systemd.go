package booted

import (
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/godbus/dbus/v5"

	"machine-pivot/test/worlds/buspeer"
)

// systemd is a stand-in for systemd during one boot. It accepts jobs on its private socket,
// /run/systemd/private, and ignores all of them except a reboot.
type systemd struct {
	server  buspeer.Server
	reboots chan struct{} // receives when a reboot is requested
}

// startSystemd starts the stand-in for the current boot. The caller must close it.
func (m *Machine) startSystemd() (*systemd, error) {
	socket := filepath.Join(m.RunDir, "systemd/private")
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		return nil, err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("cannot stand in for systemd: %w", err)
	}
	s := &systemd{reboots: make(chan struct{}, 1)}
	s.server.Answer = s.answer
	s.server.Start(listener)
	return s, nil
}

func (s *systemd) Close() error { return s.server.Close() }

// answer accepts the job that StartUnit requests, says that there was no soft reboot, and rejects every other method.
func (s *systemd) answer(call buspeer.Call) ([]any, error) {
	switch call.Method {
	case "org.freedesktop.systemd1.Manager.StartUnit":
		if call.Args[0] == "reboot.target" {
			select {
			case s.reboots <- struct{}{}:
			default: // already requested
			}
		}
		return []any{dbus.ObjectPath("/org/freedesktop/systemd1/job/1")}, nil
	case "org.freedesktop.DBus.Properties.Get":
		if call.Args[1] == "SoftRebootsCount" {
			return []any{dbus.MakeVariant(uint32(0))}, nil
		}
	}
	return nil, buspeer.UnknownMethod(call.Method)
}
