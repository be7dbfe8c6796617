// Package registry is a container registry for tests and demonstrations. It serves the real
// protocol over HTTPS, with its own CA and a pull secret, on a port of the loopback interface. It
// can inject faults.
//
// The protocol is implemented by go-containerregistry's pkg/registry. Blobs are files below
// Options.Dir, so large images need no memory. A virtual machine with QEMU's user network reaches
// the registry as 10.0.2.2.
package registry

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	ggcr "github.com/google/go-containerregistry/pkg/registry"
)

// Options configure a registry. The zero value is a registry with a default password and blobs in
// a temporary directory.
type Options struct {
	Dir                string   // for blobs; default: a temporary directory, removed by Close
	Port               int      // default: any free port
	Names              []string // additional host names and addresses in the certificate
	Username, Password string   // default: "puller", "pull-secret"
	Anonymous          bool     // require no password
	Bearer             bool     // require a token, issued for the password at /token
	Referrers          bool     // list what refers to a manifest (OCI distribution specification 1.1)

	// The certificate's validity. Default: a day, starting an hour ago.
	NotBefore, NotAfter time.Time
}

// Registry is a running registry.
type Registry struct {
	opts    Options
	dir     string
	tempDir bool
	cert    tls.Certificate
	ca      []byte
	port    int
	hold    *portHold
	inner   http.Handler
	faults  faults
	tokens  atomic.Int64 // how often all tokens were expired
	served  atomic.Int64 // bytes of blobs that were sent

	mu       sync.Mutex
	server   *http.Server // nil while down
	listener net.Listener // of server
	log      []string
}

// Start starts a registry on a port of 127.0.0.1.
func Start(opts Options) (*Registry, error) {
	if opts.Username == "" {
		opts.Username, opts.Password = "puller", "pull-secret"
	}
	r := &Registry{opts: opts, dir: opts.Dir}
	if err := r.start(); err != nil {
		return nil, fmt.Errorf("cannot start a registry: %w", errors.Join(err, r.Close()))
	}
	return r, nil
}

func (r *Registry) start() (err error) {
	if r.dir == "" {
		if r.dir, err = os.MkdirTemp("", "registry-*"); err != nil {
			return err
		}
		r.tempDir = true
	}
	if r.cert, r.ca, err = newCertificate(r.opts); err != nil {
		return err
	}
	if r.hold, err = holdPort(r.opts.Port); err != nil {
		return err
	}
	r.port = r.hold.port
	r.inner = severalParts(blobDir(r.dir), ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0)), ggcr.WithBlobHandler(blobDir(r.dir)), ggcr.WithReferrersSupport(r.opts.Referrers)))
	return r.serve()
}

// serve starts to accept connections.
func (r *Registry) serve() error {
	listener, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port)))
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:   http.HandlerFunc(r.handle),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{r.cert}},
		ErrorLog:  log.New(io.Discard, "", 0),
	}
	r.mu.Lock()
	r.server, r.listener = server, listener
	r.mu.Unlock()
	go func() { _ = server.ServeTLS(listener, "", "") }() // ends with Close
	return nil
}

// handle logs a request, checks the credentials and serves the request.
func (r *Registry) handle(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.log = append(r.log, req.Method+" "+req.URL.RequestURI())
	r.mu.Unlock()
	if !r.authorized(w, req) {
		return
	}
	r.completeRange(req)
	next := r.inner
	if req.URL.Path == tokenPath {
		next = http.HandlerFunc(r.serveToken)
	}
	r.faults.wrap(next).ServeHTTP(&counter{w, req, &r.served}, req)
}

// counter counts the bytes of blobs that are sent.
type counter struct {
	http.ResponseWriter
	req   *http.Request
	bytes *atomic.Int64
}

// Write implements http.ResponseWriter.
func (c *counter) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	if c.req.Method == http.MethodGet && strings.Contains(c.req.URL.Path, "/blobs/") {
		c.bytes.Add(int64(n))
	}
	return n, err
}

// Unwrap is for http.ResponseController.
func (c *counter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// BytesServed returns the number of bytes of blobs that were sent so far, including error
// responses to requests for blobs.
func (r *Registry) BytesServed() int64 { return r.served.Load() }

func writeError(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"errors": []map[string]string{{"code": code, "message": message}},
	})
}

// SetDown makes the registry refuse connections, or accept them again. It keeps its port.
func (r *Registry) SetDown(down bool) error {
	r.mu.Lock()
	server, listener := r.server, r.listener
	if down {
		r.server = nil
	}
	r.mu.Unlock()
	switch {
	case down && server != nil:
		err := server.Close()
		// A server that has just been started may not know its listener yet.
		if last := listener.Close(); !errors.Is(last, net.ErrClosed) {
			err = errors.Join(err, last)
		}
		return err
	case !down && server == nil:
		return r.serve()
	}
	return nil
}

// Close stops the registry.
func (r *Registry) Close() error {
	err := r.SetDown(true)
	if r.hold != nil {
		err = errors.Join(err, r.hold.release())
	}
	if r.tempDir {
		err = errors.Join(err, os.RemoveAll(r.dir))
	}
	return err
}

// CA returns the certificate that clients must trust, as PEM.
func (r *Registry) CA() []byte { return r.ca }

// Port returns the TCP port.
func (r *Registry) Port() int { return r.port }

// Host returns the registry's HOST:PORT for clients on this machine.
func (r *Registry) Host() string { return r.HostAs("127.0.0.1") }

// HostAs returns HOST:PORT for clients that reach the registry under another name.
func (r *Registry) HostAs(host string) string {
	return net.JoinHostPort(host, strconv.Itoa(r.port))
}

// PullSecret returns an auth.json for a host, given as in an image reference (HOST:PORT).
func (r *Registry) PullSecret(host string) []byte {
	auth := base64.StdEncoding.EncodeToString([]byte(r.opts.Username + ":" + r.opts.Password))
	secret, err := json.Marshal(map[string]any{"auths": map[string]any{host: map[string]string{"auth": auth}}})
	if err != nil {
		panic(err) // maps of strings always marshal
	}
	return secret
}

// Requests returns the number of requests so far.
func (r *Registry) Requests() int { return len(r.RequestLog()) }

// RequestLog returns all requests so far, as "METHOD URI".
func (r *Registry) RequestLog() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.log...)
}
