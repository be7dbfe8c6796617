// Package buspeer is the server side of D-Bus, for stand-ins of daemons: they answer on sockets of
// their own, without a message bus in between, or in its place.
package buspeer

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"

	"github.com/godbus/dbus/v5"
)

// Call is a method call.
type Call struct {
	From        *Conn
	Destination string
	Path        dbus.ObjectPath
	Method      string // with the interface in front
	Args        []any
}

// Server answers the calls on the connections to a socket.
type Server struct {
	// Answer returns what a call returns. An error that is no dbus.Error becomes one of the name
	// org.freedesktop.DBus.Error.Failed.
	Answer func(Call) ([]any, error)
	Left   func(*Conn) // called when a client has closed its connection; may be nil

	listener net.Listener
	mu       sync.Mutex
	conns    map[*Conn]bool
}

// Conn is the connection with one client.
type Conn struct {
	conn net.Conn
	mu   sync.Mutex // held while a message is written
}

// Start serves the connections that listener accepts, until Close.
func (s *Server) Start(listener net.Listener) {
	s.listener, s.conns = listener, map[*Conn]bool{}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed
			}
			go s.serve(&Conn{conn: conn})
		}
	}()
}

// Close ends the server and its connections.
func (s *Server) Close() error {
	err := s.listener.Close()
	s.Drop()
	return err
}

// Drop ends all connections, as when the server's process dies and is started again.
func (s *Server) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.conn.Close() // the client may have left meanwhile
	}
	clear(s.conns)
}

// Emit sends a signal to all clients.
func (s *Server) Emit(path dbus.ObjectPath, iface, name string, body ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.send(&dbus.Message{Type: dbus.TypeSignal, Body: body, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldPath: dbus.MakeVariant(path), dbus.FieldInterface: dbus.MakeVariant(iface), dbus.FieldMember: dbus.MakeVariant(name),
		}})
	}
}

// Clients returns the number of clients.
func (s *Server) Clients() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

func (s *Server) serve(c *Conn) {
	defer c.conn.Close()
	in := bufio.NewReader(c.conn)
	if err := authenticate(in, c.conn); err != nil {
		return
	}
	s.mu.Lock()
	s.conns[c] = true
	s.mu.Unlock()
	for {
		msg, err := dbus.DecodeMessage(in)
		if err == nil {
			err = c.send(s.reply(c, msg))
		}
		if err != nil {
			break
		}
	}
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	if s.Left != nil {
		s.Left(c)
	}
}

// reply returns the answer to a call.
func (s *Server) reply(c *Conn, msg *dbus.Message) *dbus.Message {
	text := func(field dbus.HeaderField) string {
		value, _ := msg.Headers[field].Value().(string)
		return value
	}
	path, _ := msg.Headers[dbus.FieldPath].Value().(dbus.ObjectPath)
	body, err := s.Answer(Call{c, text(dbus.FieldDestination), path, text(dbus.FieldInterface) + "." + text(dbus.FieldMember), msg.Body})
	reply := &dbus.Message{Type: dbus.TypeMethodReply, Body: body, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldReplySerial: dbus.MakeVariant(msg.Serial()),
	}}
	if err != nil {
		failure, ok := errors.AsType[dbus.Error](err)
		if !ok {
			failure = *dbus.NewError("org.freedesktop.DBus.Error.Failed", []any{err.Error()})
		}
		reply.Type, reply.Body = dbus.TypeError, failure.Body
		reply.Headers[dbus.FieldErrorName] = dbus.MakeVariant(failure.Name)
	}
	return reply
}

func (c *Conn) send(msg *dbus.Message) error {
	if len(msg.Body) > 0 {
		msg.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(msg.Body...))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return msg.EncodeTo(c.conn, binary.LittleEndian)
}

// UnknownMethod is the answer to a call of a method that the stand-in does not have.
func UnknownMethod(method string) error {
	return *dbus.NewError("org.freedesktop.DBus.Error.UnknownMethod", []any{"No such method “" + method + "”"})
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
