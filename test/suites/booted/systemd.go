package booted

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/godbus/dbus/v5"
)

// systemd is a stand-in for systemd during one boot. It accepts jobs on its private socket,
// /run/systemd/private, and ignores all of them except a reboot.
type systemd struct {
	listener net.Listener
	reboots  chan struct{} // receives when a reboot is requested
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
	s := &systemd{listener: listener, reboots: make(chan struct{}, 1)}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed
			}
			go s.serve(conn)
		}
	}()
	return s, nil
}

func (s *systemd) Close() error { return s.listener.Close() }

// serve speaks D-Bus with one client until that disconnects.
func (s *systemd) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	if err := authenticate(in, conn); err != nil {
		return
	}
	for {
		msg, err := dbus.DecodeMessage(in)
		if err != nil {
			return
		}
		if err := s.answer(msg).EncodeTo(conn, binary.LittleEndian); err != nil {
			return
		}
	}
}

// authenticate is the server side of D-Bus authentication. It accepts every client.
func authenticate(in *bufio.Reader, out io.Writer) error {
	if nul, err := in.ReadByte(); err != nil || nul != 0 {
		return errors.Join(errors.New("no NUL byte first"), err)
	}
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		answer := "REJECTED EXTERNAL"
		switch command, _, _ := strings.Cut(strings.TrimSpace(line), " "); {
		case command == "BEGIN":
			return nil
		case command == "NEGOTIATE_UNIX_FD":
			answer = "AGREE_UNIX_FD"
		case strings.HasPrefix(line, "AUTH EXTERNAL"):
			answer = "OK 0123456789abcdef0123456789abcdef"
		}
		if _, err := io.WriteString(out, answer+"\r\n"); err != nil {
			return err
		}
	}
}

// answer accepts the job that StartUnit requests, says that there was no soft reboot, and rejects every other method.
func (s *systemd) answer(msg *dbus.Message) *dbus.Message {
	reply := &dbus.Message{Type: dbus.TypeMethodReply, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldReplySerial: dbus.MakeVariant(msg.Serial()),
	}}
	if unit, ok := first(msg.Body); ok && msg.Headers[dbus.FieldMember].Value() == "StartUnit" {
		if unit == "reboot.target" {
			select {
			case s.reboots <- struct{}{}:
			default: // already requested
			}
		}
		job := dbus.ObjectPath("/org/freedesktop/systemd1/job/1")
		reply.Body, reply.Headers[dbus.FieldSignature] = []any{job}, dbus.MakeVariant(dbus.SignatureOf(job))
		return reply
	}
	if len(msg.Body) == 2 && msg.Headers[dbus.FieldMember].Value() == "Get" && msg.Body[1] == "SoftRebootsCount" {
		count := dbus.MakeVariant(uint32(0))
		reply.Body, reply.Headers[dbus.FieldSignature] = []any{count}, dbus.MakeVariant(dbus.SignatureOf(count))
		return reply
	}
	reply.Type = dbus.TypeError
	reply.Headers[dbus.FieldErrorName] = dbus.MakeVariant("org.freedesktop.DBus.Error.UnknownMethod")
	return reply
}

func first(body []any) (text string, ok bool) {
	if len(body) == 0 {
		return "", false
	}
	text, ok = body[0].(string)
	return text, ok
}
