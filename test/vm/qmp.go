package vm

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// monitor is this process's end of QEMU's monitor (QMP).
type monitor struct {
	conn net.Conn
	peer *os.File // QEMU's end, until QEMU has it
}

// newMonitor makes a monitor on a pair of sockets: nothing is left in the file
// system, and the end of QEMU is always the end of the stream.
func newMonitor() (*monitor, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot make QEMU's monitor: %w", err)
	}
	ours, peer := os.NewFile(uintptr(fds[0]), "qmp"), os.NewFile(uintptr(fds[1]), "qmp")
	defer ours.Close() // FileConn has a copy
	conn, err := net.FileConn(ours)
	if err != nil {
		peer.Close()
		return nil, fmt.Errorf("cannot make QEMU's monitor: %w", err)
	}
	return &monitor{conn: conn, peer: peer}, nil
}

// shutdownReason follows the monitor to its end. The reason is what QEMU last
// told of why the machine ends: with -no-reboot it exits in any case, and its
// exit status tells nothing.
func (m *monitor) shutdownReason() string {
	if _, err := io.WriteString(m.conn, `{"execute":"qmp_capabilities"}`+"\n"); err != nil {
		return err.Error()
	}
	reason := "unknown"
	for lines := bufio.NewScanner(m.conn); lines.Scan(); {
		var event struct {
			Event string
			Data  struct{ Reason string }
		}
		if json.Unmarshal(lines.Bytes(), &event) == nil && event.Event == "SHUTDOWN" {
			reason = event.Data.Reason
		}
	}
	return reason
}
