package configserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/author/provision"
	"machine-pivot/kargs"
)

// apiServer is the store of one token that several servers use, as the API server keeps it.
type apiServer struct {
	mu      sync.Mutex
	is      kept
	number  int
	writes  int
	failure error
}

func (a *apiServer) read(context.Context, string) (kept, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.is, a.failure
}

func (a *apiServer) save(_ context.Context, k kept, ledger provision.Ledger) (kept, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failure != nil {
		return kept{}, a.failure
	}
	if k.version != a.is.version {
		return kept{}, apierrors.NewConflict(schema.GroupResource{Resource: "secrets"}, k.name, errors.New("it has changed"))
	}
	a.number++
	a.writes++
	a.is.Ledger, a.is.version = ledger, fmt.Sprint(a.number)
	return a.is, nil
}

func noon() time.Time { return time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC) }

func newToken(secret, pool string, uses int) kept {
	return kept{name: secret, version: "0", Token: provision.Token{Pool: pool, Digest: provision.TokenDigest(secret), Expires: noon().Add(time.Hour), Uses: uses, Grace: provision.DefaultGrace}}
}

// replica returns a server of the pools worker and master that has a token in its cache.
func replica(t testing.TB, a *apiServer) (*gate, http.Handler) {
	t.Helper()
	g := newGate(a, noon)
	g.set(a.is)
	s := &provision.Server{
		Load: func(context.Context) (provision.Content, error) {
			return provision.Content{Roles: map[string]*authored.MachineConfig{"worker": rendered(t, "worker", "nosmt"), "master": rendered(t, "master", "nosmt")}}, nil
		},
		Stamp: func() (string, error) { return "", nil },
		Log:   func(string) {},
		Guard: g,
	}
	if err := s.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	return g, s.Handler()
}

// rendered returns the rendered MachineConfig of a pool with a kernel argument.
func rendered(t testing.TB, role, argument string) *authored.MachineConfig {
	t.Helper()
	all, report := authored.Decode("", fmt.Appendf(nil, `{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig","metadata":{"name":"a","labels":{%q:%q}},"spec":{"kernelArguments":[%q]}}`,
		authored.RoleLabel, role, argument), authored.Rules{KernelArguments: kargs.DefaultPolicy()})
	m, err := authored.Merge(all, authored.Images{})
	if err == nil {
		err = m.Render(role)
	}
	if err != nil || report.Failed() {
		t.Fatal(report, err)
	}
	return m
}

// answered returns the answer to a request from an address.
func answered(h http.Handler, from, method, path, authorization string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	r.RemoteAddr = from + ":1024"
	r.Header.Set("Accept", "application/vnd.coreos.ignition+json;version=3.4.0")
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestRefusals: without a valid token of the pool, no request gets a config. Nor does an answer tell why, or whether
// there is such a pool; and no request uses a token.
func TestRefusals(t *testing.T) {
	a := &apiServer{is: newToken("secret", "worker", 1)}
	_, h := replica(t, a)
	nothing := answered(h, "10.0.0.1", "GET", "/config/worker", "")
	if nothing.Code != http.StatusUnauthorized || nothing.Header().Get("WWW-Authenticate") != "Bearer" || nothing.Header().Get("ETag") != "" {
		t.Fatalf("%d %v", nothing.Code, nothing.Header())
	}
	for _, c := range []struct{ method, path, authorization string }{
		{"GET", "/config/worker", "Bearer other"},
		{"GET", "/config/worker", "Bearer "},
		{"GET", "/config/worker", "Bearer"},
		{"GET", "/config/worker", "secret"},
		{"GET", "/config/worker", "Basic secret"},
		{"GET", "/config/worker", "Bearer secret2"},
		{"GET", "/config/worker", "Bearer Bearer secret"},
		{"GET", "/config/worker", "Bearer " + strings.Repeat("a", 10_000)},
		{"GET", "/config/master", "Bearer secret"},
		{"GET", "/config/nobody", "Bearer secret"},
		{"GET", "/config/nobody", ""},
		{"HEAD", "/config/worker", ""},
		{"GET", "/config/..%2fworker", "Bearer secret"},
		{"GET", "/config/worker%00", "Bearer secret"},
		{"GET", "/config/WORKER", "Bearer secret"},
	} {
		got := answered(h, "10.0.0.1", c.method, c.path, c.authorization)
		if got.Code != nothing.Code || got.Body.String() != nothing.Body.String() || fmt.Sprint(got.Header()) != fmt.Sprint(nothing.Header()) {
			t.Errorf("%+v: %d %s", c, got.Code, got.Body)
		}
	}
	for _, path := range []string{"/config/", "/", "/config/worker/../master", "/config//worker", "/../config/worker", "/metrics"} {
		if got := answered(h, "10.0.0.1", "GET", path, "Bearer secret"); got.Code < 300 {
			t.Errorf("%s: %d", path, got.Code)
		}
	}
	if a.writes != 0 {
		t.Errorf("refused requests have used a token")
	}
}

// TestSpent: a spent token is answered like a wrong one, whatever is asked for. So who has found an old one learns nothing.
func TestSpent(t *testing.T) {
	a := &apiServer{is: newToken("secret", "worker", 1)}
	g, h := replica(t, a)
	g.set(newToken("infra", "infra", 1)) // a pool that is not served
	if code := answered(h, "10.0.0.1", "GET", "/config/worker", "Bearer secret").Code; code != 200 {
		t.Fatal(code)
	}
	gone := newToken("infra", "infra", 1)
	gone.Ledger.Used = 1
	g.set(gone)
	for _, method := range []string{"GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE"} {
		for secret, path := range map[string]string{"secret": "/config/worker", "infra": "/config/infra"} {
			spent, wrong := answered(h, "10.0.0.2", method, path, "Bearer "+secret), answered(h, "10.0.0.2", method, path, "Bearer other")
			if spent.Code < 400 || spent.Code != wrong.Code || spent.Body.String() != wrong.Body.String() || fmt.Sprint(spent.Header()) != fmt.Sprint(wrong.Header()) {
				t.Errorf("%s %s: %d %v, and a wrong one %d %v", method, path, spent.Code, spent.Header(), wrong.Code, wrong.Header())
			}
		}
	}
	if code := answered(h, "10.0.0.1", "HEAD", "/config/worker", "Bearer secret").Code; code != 200 {
		t.Errorf("the machine that has used it, again: %d", code)
	}
}

// TestUses: what a token is good for, and what costs nothing.
func TestUses(t *testing.T) {
	a := &apiServer{is: newToken("secret", "worker", 1)}
	g, h := replica(t, a)
	get := func(from string) int { return answered(h, from, "GET", "/config/worker", "bearer secret").Code }
	if code := answered(h, "10.0.0.1", "HEAD", "/config/worker", "Bearer secret").Code; code != 200 || a.writes != 0 {
		t.Errorf("HEAD: %d, %d writes", code, a.writes)
	}
	a.failure = apierrors.NewInternalError(errors.New("the API server is gone"))
	if code := get("10.0.0.1"); code != http.StatusServiceUnavailable {
		t.Errorf("a use that cannot be counted: %d", code)
	}
	a.failure = nil
	if first, again, other := get("10.0.0.1"), get("10.0.0.1"), get("10.0.0.2"); first != 200 || again != 200 || other != 401 || a.writes != 1 {
		t.Errorf("%d, %d, %d with %d writes", first, again, other, a.writes)
	}
	a.failure = apierrors.NewInternalError(errors.New("the API server is gone"))
	if code := get("10.0.0.1"); code != 200 {
		t.Errorf("a retry without the API server: %d", code)
	}
	a.failure = nil
	expired := newToken("old", "worker", 0)
	expired.Expires = noon()
	g.set(expired)
	if code := answered(h, "10.0.0.1", "GET", "/config/worker", "Bearer old").Code; code != 401 {
		t.Errorf("an expired token: %d", code)
	}
	g.set(newToken("infra", "infra", 0))
	if code := answered(h, "10.0.0.1", "GET", "/config/infra", "Bearer infra").Code; code != 503 {
		t.Errorf("a token of a pool that is not served: %d", code)
	}
	g.remove("secret")
	if code := get("10.0.0.1"); code != 401 {
		t.Errorf("a token that was taken away: %d", code)
	}
}

// TestRevoked: a server with the token still in its cache finds out when it counts.
func TestRevoked(t *testing.T) {
	for name, revoke := range map[string]func(a *apiServer){
		"deleted": func(a *apiServer) {
			a.failure = apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, "secret")
		},
		"another one":    func(a *apiServer) { a.is.Digest, a.is.version = provision.TokenDigest("new"), "1" },
		"expires before": func(a *apiServer) { a.is.Expires, a.is.version = noon(), "1" },
		"another pool's": func(a *apiServer) { a.is.Pool, a.is.version = "master", "1" },
	} {
		a := &apiServer{is: newToken("secret", "worker", 1)}
		_, h := replica(t, a)
		revoke(a)
		if code := answered(h, "10.0.0.1", "GET", "/config/worker", "Bearer secret").Code; code != 401 {
			t.Errorf("%s: %d", name, code)
		}
	}
}

// TestRace has two servers with stale caches serve more machines than a token is for: exactly as many get the
// config as it says.
func TestRace(t *testing.T) {
	for _, uses := range []int{1, 7, 100} {
		a := &apiServer{is: newToken("secret", "worker", uses)}
		_, one := replica(t, a)
		_, two := replica(t, a)
		var got, refused atomic.Int32
		var machines sync.WaitGroup
		for i := range 2*uses + 10 {
			machines.Go(func() {
				for try := range 2 { // each machine retries, at the other server
					h := []http.Handler{one, two}[(i+try)%2]
					switch answered(h, fmt.Sprintf("10.0.%d.%d", i/250, i%250), "GET", "/config/worker", "Bearer secret").Code {
					case 200:
						got.Add(1)
					case 401:
						refused.Add(1)
					}
				}
			})
		}
		machines.Wait()
		if int(got.Load()) != 2*uses || int(refused.Load()) != 2*uses+20 || a.is.Ledger.Used != uses {
			t.Errorf("%d uses: %d answers, %d refusals, %d counted", uses, got.Load(), refused.Load(), a.is.Ledger.Used)
		}
	}
}

// TestCertificate: a verified certificate admits to the pools that it names.
func TestCertificate(t *testing.T) {
	leaf := &x509.Certificate{Subject: pkix.Name{Organization: []string{"other", "machine-pivot:pool:worker"}}}
	verified := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf}}}
	for _, c := range []struct {
		state *tls.ConnectionState
		role  string
		want  bool
	}{
		{verified, "worker", true}, {verified, "master", false}, {verified, "", false}, {nil, "worker", false},
		{&tls.ConnectionState{PeerCertificates: verified.PeerCertificates}, "worker", false},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.TLS = c.state
		if got := newGate(nil, noon).Admit(r, c.role) != nil; got != c.want {
			t.Errorf("%+v %q: %v", c.state, c.role, got)
		}
	}
}

// BenchmarkMachines is many machines with one token at two servers.
func BenchmarkMachines(b *testing.B) {
	a := &apiServer{is: newToken("secret", "worker", provision.MaxUses)}
	_, h := replica(b, a)
	var next atomic.Int32
	b.SetParallelism(500) // 500 machines at a time for each processor
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			n := next.Add(1) % 5000
			answered(h, fmt.Sprintf("10.%d.%d.%d", n>>16, n>>8&255, n&255), "GET", "/config/worker", "Bearer secret")
		}
	})
	b.ReportMetric(float64(a.writes), "writes")
}
