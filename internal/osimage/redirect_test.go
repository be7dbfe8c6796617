package osimage_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/test/worlds/registry"
)

// TestRedirectsGetNoCredentials: a registry that redirects its clients to another port over plain HTTP does not have
// the credentials sent there. What the error says of the address is no secret; another host is asked without
// credentials.
func TestRedirectsGetNoCredentials(t *testing.T) {
	var mu sync.Mutex
	var asked []string // the credentials of each request
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.Header.Get("Authorization"))
		http.Error(w, "not here", http.StatusGone)
	}))
	defer other.Close()
	port := other.URL[strings.LastIndexByte(other.URL, ':'):]
	for name, c := range map[string]struct {
		bearer bool
		to     string
		want   string
		asked  int
	}{
		"another port, with a password": {false, "http://127.0.0.1" + port, "where the credentials for 127.0.0.1 must not go", 0},
		"another port, with a token":    {true, "http://127.0.0.1" + port, "where the credentials for 127.0.0.1 must not go", 0},
		"another port over TLS":         {true, "https://127.0.0.1" + port, "where the credentials for 127.0.0.1 must not go", 0},
		"another host":                  {true, "http://localhost" + port, "410", 1},
	} {
		t.Run(name, func(t *testing.T) {
			asked = nil
			h := newHost(t, registry.Options{Bearer: c.bearer})
			ref, _ := h.push("x", plain(t))
			h.registry.Spoil(registry.Rule{On: "/manifests/", Fault: registry.Redirect(c.to + "/signed-secret/x?signature=secret#secret")})
			_, err := h.lookUp(t.Context(), ref)
			if fault.KindOf(err) != fault.Refused || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("error %v, want %s", err, c.want)
			}
			if len(asked) != c.asked || strings.Join(asked, "") != "" {
				t.Errorf("requests with the credentials %q, want %d without any", asked, c.asked)
			}
		})
	}
}
