package provision

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

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/guard"
	"machine-pivot/internal/machineconfig/ignition"
)

// Limits of a connection. Clients send one request, and retry. Only the timeout for a whole
// response is long, because the network can be slow early in a boot; but each 32 KiB must be
// received within stallTimeout.
const (
	maxHeader    = 16 << 10
	readTimeout  = 10 * time.Second // for a whole request, including the TLS handshake
	stallTimeout = 10 * time.Second
	writeTimeout = 5 * time.Minute
	idleTimeout  = 5 * time.Second
	stopTimeout  = 10 * time.Second
)

// Content is what a Server serves.
type Content struct {
	Roles       map[string]*authored.MachineConfig // rendered MachineConfigs by role
	More        []ignition.Config                  // merged over the config of every role
	Certificate *tls.Certificate                   // nil: plain HTTP
}

// Server serves Ignition configs to machines on their first boot, like the machine-config server: GET /config/ROLE, in the
// version that the machine accepts. It is read-only and limits all resources. It serves what Load returns, and continues with
// the last valid content if the input becomes invalid. Reload must succeed once before Serve or Handler is used.
type Server struct {
	Load  func(context.Context) (Content, error)
	Stamp func() (string, error) // changes whenever the result of Load would change
	Log   func(line string)      // may be called concurrently

	Guard Guard       // nil: everybody gets every config
	TLS   *tls.Config // nil: that of Content.Certificate
	// Answered, if set, is told the status of each answered request for a config. The role is "" if there
	// is none of that name. It may be called concurrently.
	Answered func(role string, status int)

	MaxConnections int // maximum number of open connections; others wait
	MaxPerAddress  int // maximum number of open connections from one address; others are reset

	current atomic.Pointer[generation]
	refused atomic.Bool // the newest input is invalid and not served
}

// Reload loads the input again. On failure the served content does not change.
func (s *Server) Reload(ctx context.Context) error {
	stamp, err := s.Stamp() // first, so that a change during Load causes another reload
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

// Watch reloads changed input, at each tick. A change counts only if it is unchanged at the next
// tick, because it may still be in progress. A failed reload is retried, and the same error is
// logged once.
func (s *Server) Watch(ctx context.Context, ticks <-chan time.Time) {
	seen, logged := s.current.Load().stamp, ""
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
			logged = ""
			s.Log("reloaded")
		} else if err.Error() != logged {
			logged = err.Error()
			s.Log("not reloaded, what was served is served on: " + logged)
		}
	}
}

// Serve serves on the listener until the context ends. It then waits up to stopTimeout for running
// requests.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: s.Handler(), MaxHeaderBytes: maxHeader,
		ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
	}
	listener = guard.Listener(listener, s.MaxConnections, s.MaxPerAddress)
	switch {
	case s.TLS != nil:
		listener = tls.NewListener(listener, s.TLS)
	case s.current.Load().content.Certificate != nil:
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

// certificate returns the current certificate, so that it can be renewed without a restart.
func (s *Server) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := s.current.Load().content.Certificate; c != nil {
		return c, nil
	}
	return nil, errors.New("there is no certificate any more")
}

// Handler returns the handler for requests.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /config/{role}", s.config)
	mux.HandleFunc("GET /healthz", s.health)
	return mux
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if s.refused.Load() {
		// Machines are still served, so an invalid input is no reason to restart this server. The
		// error is only in the log, because it quotes the input.
		fmt.Fprintln(w, "ok, but the newest input is not served: see the log")
		return
	}
	fmt.Fprintln(w, "ok")
}

func (s *Server) config(w http.ResponseWriter, r *http.Request) {
	role := r.PathValue("role")
	version := negotiate(strings.Join(r.Header.Values("Accept"), ","))
	status := s.answer(w, r, role, version)
	s.Log(fmt.Sprintf("%s %.100q version %q: %d (%.100q)", r.RemoteAddr, role, version, status, r.UserAgent()))
	if s.Answered != nil {
		if _, known := s.current.Load().answers[role]; !known {
			role = ""
		}
		s.Answered(role, status)
	}
}

// answer writes the response to a request for a role's config. It returns the status.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, role, version string) int {
	w.Header().Set("Vary", "Accept")
	if version == "" {
		return refuse(w, http.StatusBadRequest, fmt.Sprintf("unsupported Ignition version in Accept header: %.100q", r.Header.Get("Accept")))
	}
	use := func(context.Context) error { return nil }
	if s.Guard != nil {
		if use = s.Guard.Admit(r, role); use == nil {
			return unauthorized(w)
		}
	}
	found := s.current.Load().find(role, version)
	switch {
	case found == nil && s.Guard != nil: // a pool that is only not yet, or not any more, there: Ignition retries this status
		return refuse(w, http.StatusServiceUnavailable, fmt.Sprintf("there is no config of %.100q at present", role))
	case found == nil:
		return refuse(w, http.StatusNotFound, fmt.Sprintf("there is no role %.100q", role))
	case found.refused != "":
		return refuse(w, http.StatusNotAcceptable, found.refused)
	}
	if r.Method != http.MethodHead {
		switch err := use(r.Context()); {
		case errors.Is(err, ErrSpent):
			return unauthorized(w)
		case err != nil:
			s.Log("a use of a token cannot be counted: " + err.Error())
			return refuse(w, http.StatusServiceUnavailable, "tokens cannot be counted at present")
		}
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

// recorder records the status of a response, and sets the deadline for each write.
type recorder struct {
	http.ResponseWriter
	status int
	end    time.Time // deadline of the whole response
}

// Write is called for each part of the response. Connections without deadlines, as in tests, are
// not limited.
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

// tag returns the ETag of a body.
func tag(body []byte) string {
	sum := sha256.Sum256(body)
	return fmt.Sprintf("%q", fmt.Sprintf("%x", sum[:16]))
}
