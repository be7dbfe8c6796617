package provision_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/author/authored"
)

// TestNegotiation: the results are those of the machine-config server's own code, except for
// 3.0.0, which it refuses. The first entry with a version decides.
func TestNegotiation(t *testing.T) {
	s := server(t, nil)
	const kind = "application/vnd.coreos.ignition+json"
	for accept, want := range map[string]string{
		"":    "2.2.0",
		"*/*": "2.2.0",
		kind:  "2.2.0",
		kind + "; version=2.4.0, application/vnd.coreos.ignition+json; version=1.0.0; q=0.5, */*; q=0.1": "2.2.0",
		kind + ";version=2.2.0":                                   "2.2.0",
		kind + ";version=2.1.0":                                   "400",
		kind + ";version=4.0.0":                                   "400",
		kind + ";version=4.0.0, */*;q=0.1":                        "400",
		kind + ";version=3.4.0;q=0.2, " + kind + ";version=1.0.0": "400",
		kind + ";version=3":                                       "2.2.0", // no version number
		kind + `;version="3.4.0"`:                                 "2.2.0",
		kind + ";version=x;version=3.4.0":                         "3.4.0",
		"text/plain":                                              "2.2.0",
		"text/html":                                               "2.2.0",
		"nonsense;;;":                                             "2.2.0",
		kind + ";version=3.0.0":                                   "3.0.0",
		kind + ";version=3.1.0":                                   "3.1.0",
		kind + ";version=3.2.7":                                   "3.2.0",
		kind + ";version=3.5.0":                                   "3.5.0",
		kind + ";version=3.6.0, */*;q=0.1":                        "3.6.0",
		kind + ";version=3.99.0-experimental":                     "3.6.0",
		kind + ";version=3.1.0+x":                                 "3.1.0",
		kind + ", " + kind + ";version=3.3.0;q=0.3":               "3.3.0",
		"*/*, " + kind + ";version=3.3.0;q=0.3":                   "3.3.0",
		kind + ";version=3.1.0;q=0.5, " + kind + ";version=3.4.0;q=0.7": "3.4.0",
		kind + ";version=3.4.0;q=0, " + kind + ";version=3.1.0":         "3.1.0",
		"text/html, " + kind + ";version=3.3.0;q=0.3":                   "3.3.0",
		"application/json;version=3.3.0":                                "2.2.0",
		"vnd.coreos.ignition+json;version=3.3.0":                        "2.2.0",
		"x/vnd.coreos.ignition+json;version=3.3.0":                      "3.3.0",
	} {
		header := http.Header{}
		if accept != "" {
			header.Set("Accept", accept)
		}
		code, got, body := s.get(t, "/config/worker", header)
		switch {
		case want == "400":
			if code != http.StatusBadRequest || !strings.Contains(body, "unsupported Ignition version in Accept header") {
				t.Errorf("%q: %d %s", accept, code, body)
			}
		case code != 200 || !strings.Contains(body, `{"ignition":{"version":"`+want+`"`) || got.Get("Content-Type") != "application/json":
			t.Errorf("%q: %d %.80s, want %s", accept, code, body, want)
		}
	}
}

// Any Accept header gets a config of a known version, or is refused.
func FuzzAccept(f *testing.F) {
	f.Add("application/vnd.coreos.ignition+json;version=3.6.0, */*;q=0.1")
	f.Add("a/b;q=0.5;version=\"3.4.0\", */*;q=nan")
	s := server(f, nil)
	f.Fuzz(func(t *testing.T, accept string) {
		request := httptest.NewRequest(http.MethodGet, "/config/worker", nil)
		request.Header["Accept"] = []string{accept}
		answer := httptest.NewRecorder()
		s.Handler().ServeHTTP(answer, request)
		body := answer.Body.String()
		known := slices.ContainsFunc(authored.IgnitionVersions(), func(v string) bool { return strings.HasPrefix(body, `{"ignition":{"version":"`+v+`"`) })
		if answer.Code != http.StatusOK && answer.Code != http.StatusBadRequest || known != (answer.Code == http.StatusOK) {
			t.Errorf("%q: %d %.100s", accept, answer.Code, body)
		}
	})
}
