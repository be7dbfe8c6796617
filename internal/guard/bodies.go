package guard

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Bodies bounds the bodies of requests that a handler reads whole, in bytes.
type Bodies struct {
	Each       int64         // of one request
	PerAddress int64         // of all requests of one machine together
	All        int64         // of all requests together
	Whole      time.Duration // for a whole body to arrive; a fifth of it until there is room

	mu      sync.Mutex
	taken   int64
	of      map[netip.Addr]int64
	changed chan struct{} // closed when room is given back
}

// First reads the body of each request before next gets it. A request takes room for its whole body before a byte is
// read, and keeps the room until its answer. So a client that does not send what it says holds only this room, and only
// for the time of a body. A request without the length of its body is refused. A server of HTTP/2 needs the limits of the
// function HTTP2.
func (b *Bodies) First(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		refuse := func(status int, why string) {
			_ = control.SetReadDeadline(time.Now()) // net/http would read what is left of the body
			http.Error(w, why, status)
		}
		switch {
		case r.ContentLength < 0:
			refuse(http.StatusLengthRequired, "the length of the body is missing")
			return
		case r.ContentLength > b.Each:
			refuse(http.StatusRequestEntityTooLarge, "the body is too large")
			return
		}
		give, ok := b.take(r.Context(), from(r.RemoteAddr), r.ContentLength, time.Now().Add(b.Whole/5))
		if !ok {
			refuse(http.StatusServiceUnavailable, "too many requests are open")
			return
		}
		defer give()
		_ = control.SetReadDeadline(time.Now().Add(b.Whole))
		body := make([]byte, r.ContentLength)
		if _, err := io.ReadFull(r.Body, body); err != nil {
			refuse(http.StatusRequestTimeout, "the body did not arrive")
			return
		}
		_ = control.SetReadDeadline(time.Time{})
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// take waits until there is room for n bytes. give gives it back.
func (b *Bodies) take(ctx context.Context, of netip.Addr, n int64, until time.Time) (give func(), ok bool) {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	for {
		changed, ok := b.try(of, n)
		if ok {
			return func() { b.give(of, n) }, true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, false
		}
	}
}

// try takes room, if there is any. If not, the channel is closed when that may have changed.
func (b *Bodies) try(of netip.Addr, n int64) (changed chan struct{}, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of == nil {
		b.of, b.changed = map[netip.Addr]int64{}, make(chan struct{})
	}
	if b.taken+n > b.All || b.of[of]+n > b.PerAddress {
		return b.changed, false
	}
	b.taken += n
	b.of[of] += n
	return nil, true
}

func (b *Bodies) give(of netip.Addr, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken -= n
	if b.of[of] -= n; b.of[of] == 0 {
		delete(b.of, of)
	}
	close(b.changed)
	b.changed = make(chan struct{})
}

// from returns the machine of a client.
func from(address string) netip.Addr {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return netip.Addr{}
	}
	return machine(net.TCPAddrFromAddrPort(at))
}
