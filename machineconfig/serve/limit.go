package serve

import (
	"net"
	"sync"
)

// limited is a listener that accepts a connection only while fewer than n are
// open. More wait in the system's queue, where they cost nothing.
func limited(listener net.Listener, n int) net.Listener {
	return &limit{Listener: listener, free: make(chan struct{}, n), closed: make(chan struct{})}
}

type limit struct {
	net.Listener
	free   chan struct{} // holds one for each open connection
	closed chan struct{}
	once   sync.Once
}

func (l *limit) Accept() (net.Conn, error) {
	select {
	case l.free <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.free
		return nil, err
	}
	return &limitedConn{Conn: c, release: sync.OnceFunc(func() { <-l.free })}, nil
}

func (l *limit) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	release func()
}

func (c *limitedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
