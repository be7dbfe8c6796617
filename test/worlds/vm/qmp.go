package vm

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// monitor is a connection to QEMU's monitor (QMP).
type monitor struct {
	conn    net.Conn
	peer    *os.File     // QEMU's end, to be closed here once QEMU has started
	answers chan diskUse // to diskUse; closed when QEMU has ended
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
	return &monitor{conn: conn, peer: peer, answers: make(chan diskUse)}, nil
}

// message is a message of QEMU: an event, or the answer to a command.
type message struct {
	Event  string
	Data   struct{ Reason string }
	ID     string // of the command that Return answers
	Return json.RawMessage
}

// IDs of commands.
const (
	useNow = "use"        // the disk's use, while the machine runs
	useEnd = "use-at-end" // the same, when it has ended
)

// hasQuit is the reason of QEMU's end after it was told to quit.
const hasQuit = "host-qmp-quit"

// watchdogReset is the reason if the machine's watchdog has expired. QEMU itself gives the reason of a reset
// by the guest.
const watchdogReset = "watchdog"

// follow reads what QEMU says until it ends, and returns why the guest shut down. QEMU's exit status is of
// no use: with -no-reboot QEMU exits after a reset as it does after a shutdown. If measured is set, QEMU
// waits at the end, with -no-shutdown: then follow also returns what the guest has used of its disk, and tells
// QEMU to quit.
func (m *monitor) follow(measured bool) (reason string, use diskUse) {
	defer close(m.answers)
	if err := m.send("qmp_capabilities", ""); err != nil {
		return err.Error(), use
	}
	reason = "unknown"
	var watchdog bool
	for lines := bufio.NewScanner(m.conn); lines.Scan(); {
		var said message
		if json.Unmarshal(lines.Bytes(), &said) != nil {
			continue
		}
		switch {
		case said.Event == "WATCHDOG": // QEMU's -action says what follows: by default a reset
			watchdog = true
		case said.Event == "SHUTDOWN" && said.Data.Reason != hasQuit:
			if reason = said.Data.Reason; watchdog {
				reason = watchdogReset
			}
			if measured {
				_ = m.send(queryDisk, useEnd) // if it fails, QEMU has ended
			}
		case said.ID == useEnd:
			use = said.diskUse()
			_ = m.send("quit", "")
		case said.ID == useNow:
			m.answers <- said.diskUse()
		}
	}
	return reason, use
}

// queryDisk is the command for the statistics of a machine's disks.
const queryDisk = "query-blockstats"

// diskUse is what a machine has read from its disk and written to it since power-on, in bytes.
type diskUse struct{ read, written int64 }

// diskUse is the use of the disk in an answer to queryDisk.
func (m message) diskUse() (use diskUse) {
	var disks []struct {
		Stats struct {
			Read    int64 `json:"rd_bytes"`
			Written int64 `json:"wr_bytes"`
		}
	}
	_ = json.Unmarshal(m.Return, &disks) // else it is an error of QEMU, which never has one here
	for _, d := range disks {
		use.read, use.written = use.read+d.Stats.Read, use.written+d.Stats.Written
	}
	return use
}

// diskUse asks for the use of the disk while the machine runs; it is zero if the machine has ended.
func (m *monitor) diskUse() diskUse {
	if m.send(queryDisk, useNow) != nil {
		return diskUse{}
	}
	return <-m.answers
}

// send sends a command. Its answer has the ID.
func (m *monitor) send(command, id string) error {
	text, err := json.Marshal(map[string]string{"execute": command, "id": id})
	if err == nil {
		_, err = m.conn.Write(append(text, '\n'))
	}
	return err
}
