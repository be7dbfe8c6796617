// Package serve gives machines their Ignition configs at first boot, as the
// machine-config server does: GET /config/ROLE, in the version that the machine
// accepts. It only reads, everything in it is bounded, and what it serves stays
// the last that was right when the input changes for the worse.
package serve

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"machine-pivot/internal/author/machineconfig"
	"machine-pivot/internal/machineconfig/ignition"
)

// The bounds of a connection. Machines ask for one thing, and retry. Only the time
// for a whole answer is long, since a boot's first seconds on a network are slow; but
// each 32 KiB of it must be taken within stallTimeout.
const (
	maxHeader    = 16 << 10
	readTimeout  = 10 * time.Second // for a whole request, with TLS's handshake
	stallTimeout = 10 * time.Second
	writeTimeout = 5 * time.Minute
	idleTimeout  = 5 * time.Second
	stopTimeout  = 10 * time.Second
)

// Content is what a server serves.
type Content struct {
	Roles       map[string]*machineconfig.MachineConfig // rendered, by role
	More        []ignition.Config                       // for every machine, merged over the role's own
	Certificate *tls.Certificate                        // nil: plain HTTP
}

// Server serves what Load gives. Reload must have succeeded once before it does.
type Server struct {
	Load  func(context.Context) (Content, error)
	Stamp func() (string, error) // another one whenever Load would give something else
	Log   func(line string)      // may be called by several at once

	MaxConnections int // that are open at once; more wait
	MaxPerAddress  int // that one address has open at once; more are reset

	current atomic.Pointer[generation]
	refused atomic.Bool // the newest input is not served
}

// Reload takes the input anew. If it fails, what is served stays as it was.
func (s *Server) Reload(ctx context.Context) error {
	stamp, err := s.Stamp() // before: what changes while it is read is read again
	var content Content
	if err == nil {
		content, err = s.Load(ctx)
	}
	if err != nil {
		s.refused.Store(true)
		return err
	}
	s.current.Store(newGeneration(content, stamp))
	s.refused.Store(false)
	return nil
}

// Watch reloads what has changed, at each tick. A change counts when the next
// tick finds it as it was: what is being copied is not whole yet. What failed is
// tried again, and told once.
func (s *Server) Watch(ctx context.Context, ticks <-chan time.Time) {
	seen, told := s.current.Load().stamp, ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
		stamp, err := s.Stamp()
		if err != nil {
			stamp = "error: " + err.Error()
		}
		settled := stamp == seen
		seen = stamp
		if !settled || stamp == s.current.Load().stamp {
			continue
		}
		if err := s.Reload(ctx); err == nil {
			told = ""
			s.Log("reloaded")
		} else if err.Error() != told {
			told = err.Error()
			s.Log("not reloaded, what was served is served on: " + told)
		}
	}
}

// Serve answers on the listener until the context ends, and then lets running
// answers finish for a while.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: s.Handler(), MaxHeaderBytes: maxHeader,
		ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
	}
	listener = limited(listener, s.MaxConnections, s.MaxPerAddress)
	if s.current.Load().content.Certificate != nil {
		listener = tls.NewListener(listener, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.certificate})
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		return server.Close()
	}
	return nil
}

// certificate is the newest, so that it can be renewed without a restart.
func (s *Server) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := s.current.Load().content.Certificate; c != nil {
		return c, nil
	}
	return nil, errors.New("there is no certificate any more")
}

// Handler answers requests.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /config/{role}", s.config)
	mux.HandleFunc("GET /healthz", s.health)
	return mux
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if s.refused.Load() {
		// Machines get what they need: that the newest input is bad is no reason to stop this
		// server. Why is told to those who may read the log: it quotes the input.
		fmt.Fprintln(w, "ok, but the newest input is not served: see the log")
		return
	}
	fmt.Fprintln(w, "ok")
}

func (s *Server) config(w http.ResponseWriter, r *http.Request) {
	role := r.PathValue("role")
	version := negotiate(strings.Join(r.Header.Values("Accept"), ","))
	status := s.answer(w, r, role, version)
	s.Log(fmt.Sprintf("%s %q version %q: %d (%.100q)", r.RemoteAddr, role, version, status, r.UserAgent()))
}

// answer writes the answer to a request for a role's config; it is the status.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, role, version string) int {
	w.Header().Set("Vary", "Accept")
	if version == "" {
		return refuse(w, http.StatusBadRequest, fmt.Sprintf("unsupported Ignition version in Accept header: %.100q", r.Header.Get("Accept")))
	}
	found := s.current.Load().find(role, version)
	switch {
	case found == nil:
		return refuse(w, http.StatusNotFound, fmt.Sprintf("there is no role %.100q", role))
	case found.refused != "":
		return refuse(w, http.StatusNotAcceptable, found.refused)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("ETag", found.etag)
	w.Header().Set("Cache-Control", "private, no-cache") // it may hold secrets
	recorded := &recorder{ResponseWriter: w, status: http.StatusOK, end: time.Now().Add(writeTimeout)}
	http.ServeContent(recorded, r, "", time.Time{}, bytes.NewReader(found.body))
	return recorded.status
}

func refuse(w http.ResponseWriter, status int, text string) int {
	http.Error(w, text, status)
	return status
}

// recorder keeps the status of an answer, and ends one that is not taken.
type recorder struct {
	http.ResponseWriter
	status int
	end    time.Time // of the whole answer
}

// Write is called with a part of the answer after the other. A connection that
// knows no deadline, as in tests, has none.
func (r *recorder) Write(part []byte) (int, error) {
	deadline := time.Now().Add(stallTimeout)
	if deadline.After(r.end) {
		deadline = r.end
	}
	_ = http.NewResponseController(r.ResponseWriter).SetWriteDeadline(deadline)
	return r.ResponseWriter.Write(part)
}

func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// tag is the ETag of a body.
func tag(body []byte) string {
	sum := sha256.Sum256(body)
	return fmt.Sprintf("%q", fmt.Sprintf("%x", sum[:16]))
}
