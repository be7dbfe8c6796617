package guestfleet

import (
	"fmt"
	"io"
	"net"
	"sync"

	"machine-pivot/test/worlds/bootlab"
	"machine-pivot/test/worlds/testenv"
)

// Link is the only way from a machine to the API server, and can be cut.
type Link struct {
	listener net.Listener
	to       string // address of the API server

	mu    sync.Mutex
	isCut bool
	conns []net.Conn
}

// newLink makes a link, which exists until the end of t. to is HOST:PORT.
func newLink(t testenv.T, to string) *Link {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &Link{listener: listener, to: to}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.serve()
	}()
	t.Cleanup(func() {
		listener.Close()
		<-ended
		l.Cut()
	})
	return l
}

// url returns the URL of the API server for a guest.
func (l *Link) url() string {
	return fmt.Sprintf("https://%s:%d", bootlab.GuestHost, l.listener.Addr().(*net.TCPAddr).Port)
}

func (l *Link) serve() {
	for {
		conn, err := l.listener.Accept()
		if err != nil {
			return // closed
		}
		if server, err := net.Dial("tcp4", l.to); err != nil || !l.keep(conn, server) {
			conn.Close()
		} else {
			go forward(conn, server)
			go forward(server, conn)
		}
	}
}

// keep reports whether a connection may be made.
func (l *Link) keep(both ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCut {
		both[1].Close()
		return false
	}
	l.conns = append(l.conns, both...)
	return true
}

// forward copies until one side ends, and then ends the other one.
func forward(from, to net.Conn) {
	_, _ = io.Copy(to, from)
	to.Close()
}

// Cut ends all connections, and refuses others until Heal.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = true
	for _, c := range l.conns {
		c.Close()
	}
	l.conns = nil
}

// Heal lets connections be made again.
func (l *Link) Heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isCut = false
}
