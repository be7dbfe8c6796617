package configserver

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"machine-pivot/internal/author/provision"
)

// certificatePrefix precedes the pool in the organization of a client's certificate.
const certificatePrefix = "machine-pivot:pool:"

// kept is a token with the version of its Secret.
type kept struct {
	provision.Token
	name    string // of the Secret
	version string
}

// store is where the tokens are. Its errors are those of the API.
type store interface {
	// read reads a token from the API server itself.
	read(ctx context.Context, name string) (kept, error)
	// save stores a token's ledger, if it is still in the version that was read. Otherwise its error is a
	// conflict. It returns the new version.
	save(ctx context.Context, k kept, ledger provision.Ledger) (kept, error)
}

// gate admits clients with a certificate or a token of the pool.
type gate struct {
	store store
	now   func() time.Time

	mu     sync.RWMutex
	tokens map[string]*counter // by the name of the Secret
}

func newGate(s store, now func() time.Time) *gate {
	return &gate{store: s, now: now, tokens: map[string]*counter{}}
}

// set sets what is known of a token.
func (g *gate) set(k kept) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.tokens[k.name]
	if c == nil {
		c = &counter{store: g.store, now: g.now}
		g.tokens[k.name] = c
	}
	c.set(k)
}

// remove forgets a token.
func (g *gate) remove(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.tokens, name)
}

// Admit implements provision.Guard.
func (g *gate) Admit(r *http.Request, role string) provision.Use {
	if certified(r.TLS, role) {
		return func(context.Context) error { return nil }
	}
	c := g.find(bearer(r.Header), role)
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if c == nil || err != nil {
		return nil
	}
	address := from.Addr().Unmap().WithZone("")
	if verdict, _ := c.get().Use(address, g.now()); verdict == provision.Spent { // as a wrong one, also where nothing is counted
		return nil
	}
	return func(ctx context.Context) error { return c.use(ctx, address) }
}

// find returns a request's token; nil if there is none, or it has expired.
func (g *gate) find(secret, role string) *counter {
	g.mu.RLock()
	defer g.mu.RUnlock()
	counters, tokens := make([]*counter, 0, len(g.tokens)), make([]provision.Token, 0, len(g.tokens))
	for _, c := range g.tokens {
		counters, tokens = append(counters, c), append(tokens, c.get().Token)
	}
	i := provision.FindToken(tokens, secret, role)
	if i < 0 || tokens[i].Expired(g.now()) {
		return nil
	}
	return counters[i]
}

// bearer returns the token in the headers of a request; "" if there is none, or more than one.
func bearer(h http.Header) string {
	values := h.Values("Authorization")
	if len(values) != 1 {
		return ""
	}
	scheme, secret, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(secret)
}

// certified reports whether a client has a certificate of a pool, which the TLS library has verified.
func certified(state *tls.ConnectionState, role string) bool {
	return state != nil && len(state.VerifiedChains) > 0 &&
		slices.Contains(state.PeerCertificates[0].Subject.Organization, certificatePrefix+role)
}

// gone reports whether an error of the API says that a token does not exist any more.
func gone(err error) bool { return apierrors.IsNotFound(err) || errors.Is(err, errNoToken) }
