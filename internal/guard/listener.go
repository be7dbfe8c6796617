package guard

import (
	"net"
	"net/netip"
	"sync"
)

// sendBuffer limits the kernel's send buffer, in bytes, for clients that do not read.
const sendBuffer = 64 << 10

// Listener returns a listener that accepts connections only while fewer than n are open. Others wait
// in the kernel's queue, where they cost nothing. Connections from one address beyond the limit
// each are reset, because in the queue they would block other clients.
func Listener(listener net.Listener, n, each int) net.Listener {
	return &limit{Listener: listener, free: make(chan struct{}, n), closed: make(chan struct{}), each: each, open: map[netip.Addr]int{}}
}

type limit struct {
	net.Listener
	free   chan struct{} // has one element for each open connection
	closed chan struct{}
	once   sync.Once
	each   int

	mu   sync.Mutex
	open map[netip.Addr]int // number of connections by machine
}

func (l *limit) Accept() (net.Conn, error) {
	select {
	case l.free <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			<-l.free
			return nil, err
		}
		from := machine(c.RemoteAddr())
		if l.enter(from) {
			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.SetWriteBuffer(sendBuffer) // the kernel's default limit is megabytes
			}
			return &limitedConn{Conn: c, release: sync.OnceFunc(func() { l.leave(from); <-l.free })}, nil
		}
		reset(c)
	}
}

// enter counts a new connection of a machine. It returns false if the machine has reached its
// limit.
func (l *limit) enter(from netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[from] >= l.each {
		return false
	}
	l.open[from]++
	return true
}

func (l *limit) leave(from netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[from]--; l.open[from] == 0 {
		delete(l.open, from)
	}
}

func (l *limit) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
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

type limitedConn struct {
	net.Conn
	release func()
}

func (c *limitedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
