package e2e_test

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"machine-pivot/test/worlds/controlplane"
	"machine-pivot/test/worlds/lab"
)

// gate is a machine's way to the API server, which can be closed: the network of a node that is cut off.
type gate struct {
	listener net.Listener
	server   string // address

	mu     sync.Mutex
	closed bool
	open   map[net.Conn]bool
}

func newGate(t *testing.T, plane *controlplane.ControlPlane) *gate {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, _ := plane.Address()
	g := &gate{listener: listener, server: strings.TrimPrefix(server, "https://"), open: map[net.Conn]bool{}}
	go g.serve()
	t.Cleanup(func() { listener.Close(); g.close(true) })
	return g
}

// ofGuests returns the URL of the API server for the machine.
func (g *gate) ofGuests() string {
	_, port, _ := strings.Cut(g.listener.Addr().String(), ":")
	return "https://" + net.JoinHostPort(lab.GuestHost, port)
}

func (g *gate) serve() {
	for {
		conn, err := g.listener.Accept()
		if err != nil {
			return
		}
		go g.pass(conn)
	}
}

// pass connects a client with the API server, until one of them or the gate is closed.
func (g *gate) pass(client net.Conn) {
	server, err := net.Dial("tcp", g.server)
	if err != nil {
		client.Close()
		return
	}
	if !g.enter(client, server) {
		return
	}
	go g.copy(server, client)
	g.copy(client, server)
}

// enter notes both ends of a connection, or closes them if the gate is closed.
func (g *gate) enter(ends ...net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range ends {
		g.open[c] = true
		if g.closed {
			c.Close()
		}
	}
	return !g.closed
}

func (g *gate) copy(to, from net.Conn) {
	_, _ = io.Copy(to, from) // either end may go
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range []net.Conn{to, from} {
		c.Close()
		delete(g.open, c)
	}
}

// close closes the gate, and the connections through it, or opens it.
func (g *gate) close(closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = closed
	for c := range g.open {
		if closed {
			c.Close()
		}
	}
}
