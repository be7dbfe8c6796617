package slot

import (
	"context"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	server "machine-pivot/test/worlds/fleetlock"
)

func clientOf(s *server.Server, id, group string) client {
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return client{URL: s.URL + "/", Group: group, ID: id, Roots: roots}
}

// TestClient (P79): slots are taken and released with the protocol, over TLS. Locks are
// recursive and belong to their owner.
func TestClient(t *testing.T) {
	s := server.Start(t, 1)
	a, b := clientOf(s, "a", "default"), clientOf(s, "b", "default")
	ctx := t.Context()
	for _, step := range []struct {
		what string
		do   func(context.Context) error
		fail string
	}{
		{"to give back what nobody has", a.unlock, ""},
		{"to take it", a.lock, ""},
		{"to take it again", a.lock, ""},
		{"another takes it", b.lock, "HTTP 500, for b of group default): failed_lock: all slots of default are taken"},
		{"another gives it back", b.unlock, ""},
		{"another takes it still", b.lock, "failed_lock"},
		{"to give it back", a.unlock, ""},
		{"then another takes it", b.lock, ""},
	} {
		err := step.do(ctx)
		if (err == nil) != (step.fail == "") || err != nil && !strings.Contains(err.Error(), step.fail) {
			t.Errorf("%s: %v, want %q", step.what, err, step.fail)
		}
		if err != nil && !fault.KindOf(err).Transient() {
			t.Errorf("%s: is permanent: %v", step.what, err)
		}
	}
	if err := clientOf(s, "a", "none").lock(ctx); fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), "unknown_group: group none is not configured") {
		t.Errorf("a group that the server does not know: %v", err)
	}
	s.Down(1)
	if err := a.unlock(ctx); !fault.KindOf(err).Transient() || !strings.Contains(err.Error(), "HTTP 503") {
		t.Errorf("a server that is down: %v", err)
	}
	other := client{URL: s.URL, Group: "default", ID: "a", Roots: x509.NewCertPool()}
	if err := other.lock(ctx); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an authority that is not known: %v", err)
	}
	s.Close()
	if err := a.lock(ctx); !fault.KindOf(err).Transient() || !strings.Contains(fault.HintOf(err), s.URL) {
		t.Errorf("no server: %v", err)
	}
}

// TestAnswersOfServers: any other response is an error that quotes a limited part, never a success.
func TestAnswersOfServers(t *testing.T) {
	for _, c := range []struct {
		status    int
		body      string
		says      string
		transient bool
	}{
		{302, "", "HTTP 302", false},
		{204, "", "it says nothing more", false},
		{404, "<html>not here</html>", "<html>not here</html>", true},
		{409, `{"kind":"busy","value":"busy"}`, "): busy", true},
		{500, `{"kind":"failed_lock","value":"etcd"}`, "failed_lock: etcd", true},
		{500, strings.Repeat("x", 1000), strings.Repeat("x", 300) + "…", true},
	} {
		asked := 0
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked++
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(c.body))
		}))
		err := client{URL: s.URL, Group: "g", ID: "i"}.lock(t.Context())
		s.Close()
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), strings.Repeat("x", 301)) || fault.KindOf(err).Transient() != c.transient || asked != 1 {
			t.Errorf("%d %.40s: %v, %d requests", c.status, c.body, err, asked)
		}
	}
}

// TestClientThroughProxy: requests go through the given proxy.
func TestClientThroughProxy(t *testing.T) {
	var asked string
	proxy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked = r.URL.String() }))
	defer proxy.Close()
	c := client{URL: "http://fleetlock.example/base", Group: "g", ID: "i", Proxy: func(*url.URL) (*url.URL, error) { return url.Parse(proxy.URL) }}
	if err := c.lock(t.Context()); err != nil || asked != "http://fleetlock.example/base/v1/pre-reboot" {
		t.Errorf("asked %q, %v", asked, err)
	}
}

// TestFleetID: the ID is what systemd derives from the machine ID for Zincati: this is what "systemd-id128 machine-id
// --app-specific=de35106b6ec24688b63afddaa156679b" prints on a machine with the ID.
func TestFleetID(t *testing.T) {
	const machine = "01234567890123456789012345678901"
	if id, err := fleetID(machine + "\n"); err != nil || id != "3df408c225764a33b52d000106ff8416" {
		t.Errorf("%q, %v", id, err)
	}
	for _, wrong := range []string{"", "uninitialized", machine[1:], machine + "00"} {
		if _, err := fleetID(wrong); err == nil {
			t.Errorf("%q has an ID", wrong)
		}
	}
}
