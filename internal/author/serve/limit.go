package serve

import (
	"net"
	"net/netip"
	"sync"

	"golang.org/x/net/netutil"
)

// sendBuffer limits the kernel's send buffer, in bytes, for clients that do not read.
const sendBuffer = 64 << 10

// limited returns a listener that accepts connections only while fewer than n are open. Others wait
// in the kernel's queue, where they cost nothing. Connections from one address beyond the limit
// each are reset, because in the queue they would block other clients.
func limited(listener net.Listener, n, each int) net.Listener {
	return netutil.LimitListener(&perMachine{Listener: listener, each: each, open: map[netip.Addr]int{}}, n)
}

// perMachine is a listener that limits the connections of each machine.
type perMachine struct {
	net.Listener
	each int

	mu   sync.Mutex
	open map[netip.Addr]int // number of connections by machine
}

func (l *perMachine) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := machine(c.RemoteAddr())
		if l.enter(from) {
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.SetWriteBuffer(sendBuffer) // the kernel's default limit is megabytes
			}
			return &counted{Conn: c, release: sync.OnceFunc(func() { l.leave(from) })}, nil
		}
		reset(c)
	}
}

// enter counts a new connection of a machine. It returns false if the machine has reached its
// limit.
func (l *perMachine) enter(from netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[from] >= l.each {
		return false
	}
	l.open[from]++
	return true
}

func (l *perMachine) leave(from netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[from]--; l.open[from] == 0 {
		delete(l.open, from)
	}
}

// machine returns the address that identifies a machine: for IPv6 the /64 network, within which a
// machine can choose its addresses.
func machine(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	from := tcp.AddrPort().Addr().Unmap().WithZone("")
	if from.Is6() {
		return netip.PrefixFrom(from, 64).Masked().Addr()
	}
	return from
}

// reset closes a connection with a RST, so that the kernel keeps no TIME_WAIT state for it.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

type counted struct {
	net.Conn
	release func()
}

func (c *counted) Close() error {
	defer c.release()
	return c.Conn.Close()
}
