package registry

import (
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"sync"
)

// Proxy is an HTTP proxy for CONNECT on a port of the loopback interface. It always connects to
// the same address, whatever host is requested.
type Proxy struct {
	to, authorization string
	listener          net.Listener
	server            *http.Server

	mu     sync.Mutex
	log    []string
	status int
}

// StartProxy starts a proxy that connects to an address, HOST:PORT. If user is not empty, clients
// must authenticate. Close stops the proxy.
func StartProxy(to, user, password string) (*Proxy, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("cannot start a proxy: %w", err)
	}
	p := &Proxy{to: to, listener: listener}
	if user != "" {
		p.authorization = "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	}
	p.server = &http.Server{Handler: p, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = p.server.Serve(listener) }() // ends with Close
	return p, nil
}

// Close stops the proxy. Established connections continue.
func (p *Proxy) Close() error { return p.server.Close() }

// Host returns HOST:PORT of the proxy.
func (p *Proxy) Host() string { return p.listener.Addr().String() }

// URL returns the proxy's URL, as for HTTPS_PROXY, with credentials unless user is empty.
func (p *Proxy) URL(user, password string) string {
	u := url.URL{Scheme: "http", Host: p.Host()}
	if user != "" {
		u.User = url.UserPassword(user, password)
	}
	return u.String()
}

// Refuse makes the proxy respond to all requests with a status from now on; 0 ends that.
func (p *Proxy) Refuse(status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status = status
}

// Log returns the HOST:PORT of each request so far that had the right credentials.
func (p *Proxy) Log() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.log...)
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	p.mu.Lock()
	status := p.status
	switch {
	case status != 0:
	case p.authorization != "" && req.Header.Get("Proxy-Authorization") != p.authorization:
		status = http.StatusProxyAuthRequired
	case req.Method != http.MethodConnect:
		status = http.StatusMethodNotAllowed
	default:
		p.log = append(p.log, req.Host)
	}
	p.mu.Unlock()
	if status != 0 {
		w.WriteHeader(status)
		return
	}
	p.tunnel(w)
}

// tunnel copies bytes in both directions until one side ends.
func (p *Proxy) tunnel(w http.ResponseWriter) {
	there, err := net.Dial("tcp4", p.to)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer there.Close()
	here, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer here.Close()
	if _, err := io.WriteString(here, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(there, buffered)
		_ = there.Close()
	}()
	_, _ = io.Copy(here, there)
}
