package source

import (
	"context"
	"net"
	"net/http/httptrace"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/guard"
)

const (
	// maxOpened is the most that the library asks for to open an image: a manifest, a config, a signature or a token.
	maxOpened = 4 << 20
	// countEvery is how often the bytes of the library's answers are counted.
	countEvery = 10 * time.Millisecond
)

// counted counts what answers to the library's requests have. The library reads the body of a refusal to its end, in memory,
// and takes nothing out of a compressed body that has no content. It gives its callers no way to limit that, but httptrace
// shows its connections, and the kernel knows what each has received.
type counted struct {
	asked uint64

	mu   sync.Mutex
	from map[*net.TCPConn]uint64 // the bytes before the current request
}

// counting returns a context for requests of the library. Their answers may have maxExtra bytes more than are asked for.
func counting(ctx context.Context, asked int64) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	c := &counted{asked: uint64(asked), from: map[*net.TCPConn]uint64{}}
	guard.Start(func() error { cancel(guard.Call(func() error { return c.watch(ctx) })); return nil })
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) { c.request(got.Conn) }})
}

// request is called with the connection of each request.
func (c *counted) request(conn net.Conn) {
	for {
		inner, is := conn.(interface{ NetConn() net.Conn }) // TLS
		if !is {
			break
		}
		conn = inner.NetConn()
	}
	if tcp, is := conn.(*net.TCPConn); is {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.from[tcp] = received(tcp)
	}
}

// watch returns an error once an answer has too many bytes, or when ctx ends.
func (c *counted) watch(ctx context.Context) error {
	again := time.NewTicker(countEvery)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-again.C:
		}
		if c.isOver() {
			return wrongAnswer("the registry sends more than was asked for")
		}
	}
}

func (c *counted) isOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn, before := range c.from {
		if now := received(conn); now > before+c.asked+maxExtra {
			return true
		}
	}
	return false
}

// received returns how many bytes a connection has received; 0 if it is closed.
func received(conn *net.TCPConn) (n uint64) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = info.Bytes_received
		}
	})
	return n
}
