package source

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/tlsclientconfig"
	"go.podman.io/image/v5/types"

	"machine-pivot/internal/retry"
)

// errNoRanges means that the source does not support reading a part of a blob.
var errNoRanges = errors.New("the source gives no parts of a blob")

// registry makes the requests for blobs and for the rest of a blob, for which the library has no
// public interface. It uses the same certificates, proxy and guard of credentials as the library. Where
// the registry is, and the credentials or token, are what the library has sent in its own last
// request to it. The library and net/http tell that to their callers: SystemContext.DockerProxy
// gets the URL of each request, and an httptrace.ClientTrace its header. So tokens are requested
// by the library only.
type registry struct {
	sys   *types.SystemContext
	name  reference.Named // of the repository
	host  string          // HOST[:PORT] of the server
	proxy func(*url.URL) (*url.URL, error)
	pause func(context.Context, time.Duration) error // waits

	mu            sync.Mutex
	scheme        string
	authorization string
	generation    int          // of the source that has sent it
	last          url.URL      // the library's last request
	again         bool         // it is the same as the one before
	own           *http.Client // for our own requests; nil before the first
}

// newRegistry returns the registry of a repository, and makes the library use it with sys. certificates are the
// TLS settings of Host.certificates; they may be nil. The library takes them as the base of its own settings.
// Its documentation says so of algorithms only, so the tests with a registry's own CA show it of certificates.
func newRegistry(sys *types.SystemContext, name reference.Named, certificates *tls.Config) *registry {
	r := &registry{sys: sys, name: name, host: serverOf(reference.Domain(name)), proxy: sys.DockerProxy, pause: retry.Sleep}
	sys.DockerProxy = r.proxyFor
	sys.BaseTLSConfig, sys.DockerCertPath = certificates, noCertificates
	return r
}

// proxyFor returns the proxy for a request of the library. It notes the request, and how the library has
// reached the registry: its first request is for /v2/, over HTTPS, and then perhaps over HTTP.
func (r *registry) proxyFor(u *url.URL) (*url.URL, error) {
	r.mu.Lock()
	if u.Host == r.host && u.Path == "/v2/" {
		r.scheme = u.Scheme
	}
	r.again, r.last = r.last == *u, *u
	r.mu.Unlock()
	return r.proxy(u)
}

// observe returns a context for requests of the library. It notes their credentials for the registry, unless those of a
// source of a later generation are known. Another goroutine may still use a source that was replaced because its token
// was refused. No answer may have much more than the asked bytes. r may be nil.
func (r *registry) observe(ctx context.Context, generation int, asked int64) context.Context {
	if r == nil {
		return ctx
	}
	ctx = counting(ctx, asked)
	var host string // of the current request
	late := &spread{registry: r}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:              func(string) { late.request(ctx) },
		GotFirstResponseByte: late.response,
		WroteHeaderField: func(key string, values []string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			switch {
			case key == "Host":
				host = values[0]
			case key == "Authorization" && host == r.host && generation >= r.generation:
				r.generation, r.authorization = generation, values[0]
			}
		},
	})
}

// openRange opens the part of a blob from the offset first to its end. r is nil for a local image,
// which has no parts.
func (r *registry) openRange(ctx context.Context, blob types.BlobInfo, first int64) (io.ReadCloser, error) {
	if r == nil {
		return nil, errNoRanges
	}
	response, err := r.get(ctx, blob, fmt.Sprintf("bytes=%d-%d", first, blob.Size-1), blob.Size-first)
	if err != nil {
		return nil, err
	}
	span := response.Header.Get("Content-Range")
	if response.StatusCode == http.StatusPartialContent && strings.HasPrefix(span, fmt.Sprintf("bytes %d-", first)) {
		return response.Body, nil
	}
	_ = response.Body.Close()
	return nil, errNoRanges
}

// errNotOurs means that a blob must be read by the library: it is not in a registry.
var errNotOurs = errors.New("it is not a registry's blob")

// openWhole opens a blob at its start. r is nil for a local image. The library could do that too, but its errors do not
// tell how long the registry wants to be left alone. It resumes a broken download by itself, after a second: all
// machines that a registry has left at the same time would be back together.
func (r *registry) openWhole(ctx context.Context, blob types.BlobInfo) (io.ReadCloser, error) {
	if r == nil || len(blob.URLs) > 0 {
		return nil, errNotOurs
	}
	response, err := r.get(ctx, blob, "", blob.Size)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		_ = response.Body.Close()
		return nil, answer{response.StatusCode}
	}
	return response.Body, nil
}

// get requests a blob, or the span of it that is not empty, of asked bytes. They are digested as they are stored, so no
// server on the way may encode them. A response with an error status is an
// error. Its connection is closed: who waits for a registry holds none of its connections.
func (r *registry) get(ctx context.Context, blob types.BlobInfo, span string, asked int64) (*http.Response, error) {
	request, err := r.request(ctx, http.MethodGet, r.inRepository("/blobs/"+blob.Digest.String()))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept-Encoding", "identity")
	if span != "" {
		request.Header.Set("Range", span)
	}
	response, err := r.client().Do(request)
	if err != nil {
		return nil, unlessHTTP(err)
	}
	if response.StatusCode >= 300 {
		_ = response.Body.Close() // what is left of the body is not read, so the connection is closed
		return nil, retry.WithAsked(answer{response.StatusCode}, response.Header.Get)
	}
	if encoding := response.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" && response.ContentLength != asked {
		_ = response.Body.Close()
		return nil, wrongAnswer("the registry, or a proxy, sends the blob encoded as %q", encoding)
	}
	response.Body = limit(response.Body, asked)
	return response, nil
}

// client returns the client for our own requests.
func (r *registry) client() *http.Client {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.own == nil {
		r.own = r.newClient()
	}
	return r.own
}

// close ends the idle connections of our own requests. r may be nil.
func (r *registry) close() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.own != nil {
		r.own.CloseIdleConnections()
	}
}

const maxRedirects = 10

// maxIdle is how many connections are kept for the next layers: as many as an import uses at once.
const maxIdle = 4

func (r *registry) newClient() *http.Client {
	transport := tlsclientconfig.NewTransport()
	transport.MaxIdleConnsPerHost = maxIdle
	transport.MaxResponseHeaderBytes = maxExtra
	transport.DisableCompression = true // layers are compressed
	transport.Proxy = func(request *http.Request) (*url.URL, error) { return r.proxy(request.URL) }
	transport.TLSClientConfig = &tls.Config{}
	if r.sys.BaseTLSConfig != nil {
		transport.TLSClientConfig = r.sys.BaseTLSConfig.Clone()
	}
	transport.TLSClientConfig.InsecureSkipVerify = r.sys.DockerInsecureSkipTLSVerify == types.OptionalBoolTrue
	return &http.Client{Transport: transport, CheckRedirect: func(_ *http.Request, via []*http.Request) error {
		if len(via) >= maxRedirects {
			return wrongAnswer("the registry redirects its clients more than %d times", maxRedirects)
		}
		return nil
	}}
}

// inRepository returns the URL of something in the repository.
func (r *registry) inRepository(path string) url.URL {
	r.mu.Lock()
	defer r.mu.Unlock()
	return url.URL{Scheme: r.scheme, Host: r.host, Path: "/v2/" + reference.Path(r.name) + path}
}

// request returns a request to the registry.
func (r *registry) request(ctx context.Context, method string, at url.URL) (*http.Request, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	request, err := http.NewRequestWithContext(ctx, method, at.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", r.sys.DockerRegistryUserAgent)
	if r.authorization != "" {
		request.Header.Set("Authorization", r.authorization)
	}
	return request, nil
}

// answer is the error for a response without a blob.
type answer struct{ status int }

func (a answer) Error() string {
	return fmt.Sprintf("fetching the blob: %d %s", a.status, http.StatusText(a.status))
}
