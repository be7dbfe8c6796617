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
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/tlsclientconfig"
	"go.podman.io/image/v5/types"
	"go.podman.io/storage/pkg/configfile"
)

// errNoRanges means that the source does not support reading a part of a blob.
var errNoRanges = errors.New("the source gives no parts of a blob")

// registry makes the requests for the rest of a blob, for which the library has no public
// interface. It uses the same certificates, proxy and guard of credentials as the library. Where
// the registry is, and the credentials or token, are what the library has sent in its own last
// request to it. The library and net/http tell that to their callers: SystemContext.DockerProxy
// gets the URL of each request, and an httptrace.ClientTrace its header. So tokens are requested
// by the library only.
type registry struct {
	sys   *types.SystemContext
	name  reference.Named // of the repository
	host  string          // HOST[:PORT] of the server
	proxy func(*url.URL) (*url.URL, error)

	mu            sync.Mutex
	scheme        string
	authorization string
}

// newRegistry returns the registry of a repository, and makes the library use it with sys.
func newRegistry(sys *types.SystemContext, name reference.Named) (r *registry, err error) {
	r = &registry{sys: sys, name: name, host: serverOf(reference.Domain(name)), proxy: sys.DockerProxy}
	sys.DockerProxy = r.proxyFor
	sys.DockerCertPath, err = certificates(sys.RootForImplicitAbsolutePaths, reference.Domain(name))
	return r, err
}

// certificates returns the directory with the certificates for a server, or "". It looks in the
// same places as the library would by itself.
func certificates(root, host string) (string, error) {
	places, err := configfile.GetSearchPaths(&configfile.File{
		Name: "certs", Extension: "d", DoNotUseExtensionForConfigName: true, UserId: os.Geteuid(), RootForImplicitAbsolutePaths: root,
	})
	for _, place := range append(places.DropInDirectories, filepath.Join(root, "/etc/docker/certs.d")) {
		dir := filepath.Join(place, host)
		if _, missing := os.Stat(dir); missing == nil {
			return dir, err
		}
	}
	return "", err
}

// proxyFor returns the proxy for a request, and notes how the library has reached the registry: its
// first request is for /v2/, over HTTPS, and then perhaps over HTTP.
func (r *registry) proxyFor(u *url.URL) (*url.URL, error) {
	if u.Host == r.host && u.Path == "/v2/" {
		r.mu.Lock()
		r.scheme = u.Scheme
		r.mu.Unlock()
	}
	return r.proxy(u)
}

// observe returns a context for requests of the library, whose credentials for the registry are
// noted. r may be nil.
func (r *registry) observe(ctx context.Context) context.Context {
	if r == nil {
		return ctx
	}
	var host string // of the current request
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaderField: func(key string, values []string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		switch {
		case key == "Host":
			host = values[0]
		case key == "Authorization" && host == r.host:
			r.authorization = values[0]
		}
	}})
}

// openRange opens the part of a blob from the offset first to its end. r is nil for a local image,
// which has no parts.
func (r *registry) openRange(ctx context.Context, blob types.BlobInfo, first int64) (io.ReadCloser, error) {
	if r == nil {
		return nil, errNoRanges
	}
	client, err := r.client()
	if err != nil {
		return nil, err
	}
	request, err := r.request(ctx, "/blobs/"+blob.Digest.String())
	if err != nil {
		return nil, err
	}
	request.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", first, blob.Size-1))
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	status, span := response.StatusCode, response.Header.Get("Content-Range")
	if status == http.StatusPartialContent && strings.HasPrefix(span, fmt.Sprintf("bytes %d-", first)) {
		return response.Body, nil
	}
	_ = response.Body.Close()
	if status < 300 {
		return nil, errNoRanges
	}
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	return nil, answer{status, time.Duration(max(0, min(seconds, maxAfter))) * time.Second}
}

// client returns a client for one request.
func (r *registry) client() (*http.Client, error) {
	transport := tlsclientconfig.NewTransport()
	transport.DisableKeepAlives = true
	transport.Proxy = func(request *http.Request) (*url.URL, error) { return r.proxy(request.URL) }
	transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: r.sys.DockerInsecureSkipTLSVerify == types.OptionalBoolTrue}
	if r.sys.DockerCertPath != "" {
		if err := tlsclientconfig.SetupCertificates(r.sys.DockerCertPath, transport.TLSClientConfig); err != nil {
			return nil, err
		}
	}
	return &http.Client{Transport: transport}, nil
}

// request returns a request for something in the repository.
func (r *registry) request(ctx context.Context, path string) (*http.Request, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := url.URL{Scheme: r.scheme, Host: r.host, Path: "/v2/" + reference.Path(r.name) + path}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", r.sys.DockerRegistryUserAgent)
	if r.authorization != "" {
		request.Header.Set("Authorization", r.authorization)
	}
	return request, nil
}

// maxAfter is how many seconds a registry may have a client wait, as in the library.
const maxAfter = 60

// answer is the error for a response without a part of the blob.
type answer struct {
	status int
	after  time.Duration // how long the registry wants to be left alone; 0: it does not say
}

func (a answer) Error() string {
	return fmt.Sprintf("fetching the rest of the blob: %d %s", a.status, http.StatusText(a.status))
}
