package source

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"

	"go.podman.io/image/v5/types"

	"machine-pivot/internal/fault"
)

// guarded decides where a client with credentials for a registry may go. The library's client takes
// them along when it is redirected: to another port of the same host, and over plain HTTP. So such
// requests fail before they are sent. A redirect to another host gets no credentials, and is
// allowed, as for storage behind a registry.
//
// A registry names the address at which tokens are given, and credentials are meant for that. It is
// recognized by its query, since the library tells nothing but the URL.
type guarded struct {
	registry origin
	insecure bool // the administrator allows plain HTTP for this registry
	proxy    func(*url.URL) (*url.URL, error)

	// signatures is where the administrator keeps signatures, perhaps on another port of the registry's
	// host; zero if nowhere. The client asks there without credentials.
	signatures origin

	mu     sync.Mutex
	tokens map[origin]bool // where tokens are given
}

// origin is where a request is sent.
type origin struct{ scheme, host, port string }

func originOf(u *url.URL) origin {
	scheme := strings.ToLower(u.Scheme)
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[scheme])
	return origin{scheme, strings.ToLower(u.Hostname()), port}
}

// serverOf returns where the registry with a name is. As in the library, only the name docker.io is
// not that of a server.
func serverOf(host string) string {
	if host == "docker.io" {
		return "registry-1.docker.io"
	}
	return host
}

// newGuarded returns the guard of an endpoint, given its HOST[:PORT] and settings, and where signatures
// are kept, or nil.
func newGuarded(sys *types.SystemContext, host string, insecure bool, signatures *url.URL) *guarded {
	g := &guarded{registry: originOf(&url.URL{Scheme: "https", Host: serverOf(host)}), insecure: insecure, proxy: sys.DockerProxy, tokens: map[origin]bool{}}
	if signatures != nil {
		g.signatures = originOf(signatures)
	}
	return g
}

// proxyFor returns the proxy for a request, or an error if the request must not be made.
func (g *guarded) proxyFor(u *url.URL) (*url.URL, error) {
	if to := originOf(u); !g.allows(to, u.Query()) {
		return nil, fault.New(fault.Refused, "it is redirected to %s://%s:%s, where the credentials for %s must not go", to.scheme, to.host, to.port, g.registry.host).
			WithHint("the registry, or its proxy, sends its clients to another port or to plain HTTP: correct its configuration, or use an address that needs no redirect")
	}
	return g.proxy(u)
}

func (g *guarded) allows(to origin, query url.Values) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	own := to.host == g.registry.host && to.port == g.registry.port
	token := query.Has("service") || query.Has("scope") || query.Has("account")
	switch {
	case to == g.signatures:
		return true
	case to.scheme == "https" && (own || g.tokens[to]), g.insecure && own:
		return true
	case token && (to.scheme == "https" || g.insecure):
		g.tokens[to] = true
		return true
	case to.scheme == "https":
		return !g.isBound(to.host, false)
	}
	return !token && !g.isBound(to.host, true)
}

// isBound reports whether the client takes credentials along to a host: that of the registry, or one
// that gives tokens. below includes the subdomains of these.
func (g *guarded) isBound(host string, below bool) bool {
	is := func(known string) bool { return host == known || below && strings.HasSuffix(host, "."+known) }
	hosts := slices.Collect(maps.Keys(g.tokens))
	return is(g.registry.host) || slices.ContainsFunc(hosts, func(known origin) bool { return is(known.host) })
}
