package serve

import (
	"net"
	"net/netip"
	"sync"
)

// sendBuffer bounds what the system keeps of an answer that nobody reads, in bytes.
const sendBuffer = 64 << 10

// limited is a listener that accepts a connection only while fewer than n are
// open. More wait in the system's queue, where they cost nothing. Of one address,
// no more than each are open; what it opens beyond that is reset, for in the queue
// it would be in everybody's way.
func limited(listener net.Listener, n, each int) net.Listener {
	return &limit{Listener: listener, free: make(chan struct{}, n), closed: make(chan struct{}), each: each, open: map[netip.Addr]int{}}
}

type limit struct {
	net.Listener
	free   chan struct{} // holds one for each open connection
	closed chan struct{}
	once   sync.Once
	each   int

	mu   sync.Mutex
	open map[netip.Addr]int // connections, by machine
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
				_ = tcp.SetWriteBuffer(sendBuffer) // else the system's own bound, megabytes, counts
			}
			return &limitedConn{Conn: c, release: sync.OnceFunc(func() { l.leave(from); <-l.free })}, nil
		}
		reset(c)
	}
}

// enter counts a connection of a machine, unless it has as many as it may.
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

// machine is what stands for the machine that an address is of: of IPv6, where a
// machine may choose from 64 bits, its network.
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

// reset closes a connection without the good-bye after which the system would
// remember it for a while.
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
