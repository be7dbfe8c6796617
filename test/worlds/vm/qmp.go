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

// monitor is a connection to QEMU's monitor (QMP).
type monitor struct {
	conn net.Conn
	peer *os.File // QEMU's end, to be closed here once QEMU has started
}

// newMonitor makes a monitor on a socket pair, so that no socket is left in the file system and
// the stream always ends when QEMU does.
func newMonitor() (*monitor, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot make QEMU's monitor: %w", err)
	}
	ours, peer := os.NewFile(uintptr(fds[0]), "qmp"), os.NewFile(uintptr(fds[1]), "qmp")
	defer ours.Close() // FileConn duplicates it
	conn, err := net.FileConn(ours)
	if err != nil {
		peer.Close()
		return nil, fmt.Errorf("cannot make QEMU's monitor: %w", err)
	}
	return &monitor{conn: conn, peer: peer}, nil
}

// shutdownReason reads the monitor's events until QEMU ends and returns the reason of the last
// SHUTDOWN event. QEMU's exit status is of no use: with -no-reboot QEMU exits after a reset as it
// does after a shutdown.
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
