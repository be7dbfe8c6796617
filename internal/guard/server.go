package guard

import (
	"net"
	"net/http"
	"time"
)

// Limits of a server that answers small requests without a body: whether a program lives, and its metrics.
const (
	maxHeader   = 16 << 10         // bytes
	readLimit   = 10 * time.Second // for a whole request, with the handshake of TLS
	writeLimit  = 10 * time.Second // for a whole response
	idleLimit   = 30 * time.Second // between two requests of a connection
	connections = 64
	perAddress  = 32
)

// Server returns a server for small requests. Its listener is to be one of Small.
func Server(handler http.Handler) *http.Server {
	return &http.Server{
		Handler: http.MaxBytesHandler(handler, 0), MaxHeaderBytes: maxHeader,
		ReadTimeout: readLimit, WriteTimeout: writeLimit, IdleTimeout: idleLimit,
	}
}

// Small returns the listener of a Server: 64 connections at most, and 32 of one address.
func Small(listener net.Listener) net.Listener { return Listener(listener, connections, perAddress) }

// HTTP2 returns the limits of an HTTP/2 connection. The requests that wait for room, all of the connection, buffer less than
// it may hold: so the bodies of those that have room arrive.
func HTTP2() *http.HTTP2Config {
	const requests, each = 16, 64 << 10
	return &http.HTTP2Config{MaxConcurrentStreams: requests, MaxReceiveBufferPerStream: each, MaxReceiveBufferPerConnection: requests * each}
}
