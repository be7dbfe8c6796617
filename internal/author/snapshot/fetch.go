package snapshot

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig/ignition"
	"machine-pivot/internal/retry"
)

// Limits of one fetch.
const (
	maxBody      = ignition.MaxContent // bytes, as sent and when decompressed
	maxRedirects = 10
	oneTry       = time.Minute
	tries        = 4
)

// request is one resource to fetch.
type request struct {
	url     *url.URL
	headers http.Header
	roots   string // PEM: certificate authorities in addition to the system's
}

// newRequest returns the request for a remote resource, or an error if it cannot be fetched.
func newRequest(r ignition.Resource, roots string) (request, error) {
	u, err := url.Parse(*r.Source)
	if err != nil {
		return request{}, fmt.Errorf("cannot parse its URL: %w", withoutURL(err))
	}
	if err := fetchable(u); err != nil {
		return request{}, err
	}
	headers := http.Header{}
	for _, h := range r.HTTPHeaders {
		if h.Value != nil {
			headers.Add(h.Name, *h.Value)
		}
	}
	return request{u, headers, roots}, nil
}

// fetchable returns an error for URLs of other schemes than http and https, and for URLs without a
// host.
func fetchable(u *url.URL) error {
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("cannot fetch %s: only http and https URLs are fetched", ignition.Address(u.String()))
	}
	return nil
}

// key identifies requests that return the same content.
func (q request) key() string { return fmt.Sprint(q.url, q.headers, q.roots) }

// get fetches the request, with retries if the failure may be temporary.
func (t *Taker) get(ctx context.Context, q request) (body []byte, err error) {
	client, err := newClient(q)
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	policy := retry.Policy{First: 2 * time.Second, Cap: 30 * time.Second, Tries: tries, Sleep: t.Wait, Now: t.Now}
	err = policy.Do(ctx, nil, func(ctx context.Context) error {
		body, err = once(ctx, client, q)
		return err
	})
	return body, err
}

// newClient returns a client that trusts the request's certificate authorities.
func newClient(q request) (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if q.roots != "" {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM([]byte(q.roots)) {
			return nil, errors.New("cannot use the certificate authorities: there is no PEM certificate in them")
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{Transport: transport, Timeout: oneTry, CheckRedirect: func(next *http.Request, via []*http.Request) error {
		return follow(next, via, q.headers)
	}}, nil
}

// errRedirect marks errors about a redirect that is not followed.
var errRedirect = errors.New("the server redirects")

// follow decides whether to follow a redirect. The configured headers are sent only to the original
// host.
func follow(next *http.Request, via []*http.Request, headers http.Header) error {
	first := via[0].URL
	switch {
	case len(via) >= maxRedirects:
		return fmt.Errorf("%w more than %d times", errRedirect, maxRedirects)
	case fetchable(next.URL) != nil:
		return fmt.Errorf("%w to %s", errRedirect, ignition.Address(next.URL.String()))
	case first.Scheme == "https" && next.URL.Scheme == "http":
		return fmt.Errorf("%w from https to http", errRedirect)
	}
	if next.URL.Host != first.Host {
		for name := range headers {
			next.Header.Del(name)
		}
	}
	return nil
}

// once is one attempt.
func once(ctx context.Context, client *http.Client, q request) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, q.url.String(), nil)
	if err != nil {
		return nil, withoutURL(err)
	}
	// A config server chooses the config version by it. File servers ignore it.
	request.Header.Set("Accept", "application/vnd.coreos.ignition+json;version="+ignition.Version+", */*;q=0.1")
	request.Header.Set("User-Agent", "pivot")
	for name, values := range q.headers {
		request.Header[name] = slices.Clone(values)
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, classified(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		err := fault.New(statusKind(response.StatusCode), "the server answers %s", strings.TrimSpace(response.Status))
		return nil, retry.WithAsked(err, response.Header.Get)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	if err != nil {
		return nil, classified(err)
	}
	if len(body) > maxBody {
		return nil, fmt.Errorf("it is larger than %d bytes", maxBody)
	}
	return body, nil
}

// statusKind reports whether a request with this response status may succeed later.
func statusKind(status int) fault.Kind {
	if status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout {
		return fault.Unavailable
	}
	return fault.BadInput
}

// classified reports of a failed request whether a retry may help: always, except for an untrusted
// certificate or a refused redirect.
func classified(err error) error {
	err = withoutURL(err)
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	if certificate || errors.Is(err, errRedirect) {
		return fault.New(fault.BadInput, "%w", err)
	}
	return fault.New(fault.Unavailable, "%w", err)
}

// withoutURL removes the URL from an error. Callers report the URL themselves, without its secrets.
func withoutURL(err error) error {
	if inner, ok := errors.AsType[*url.Error](err); ok {
		return inner.Err
	}
	return err
}
