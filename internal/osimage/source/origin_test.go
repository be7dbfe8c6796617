package source

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"go.podman.io/image/v5/types"

	"machine-pivot/internal/fault"
)

// TestGuarded: a client with credentials for a registry does not go to another port of a host
// for which it has some, nor anywhere with them over plain HTTP.
func TestGuarded(t *testing.T) {
	for name, c := range map[string]struct {
		host     string
		insecure bool
		urls     string // in order; one with "!" before it is refused
	}{
		"the registry":      {"q.io", false, "https://q.io/v2/ https://q.io:443/v2/ https://Q.io/x"},
		"a port":            {"q.io:5000", false, "https://q.io:5000/v2/ !https://q.io/x !https://q.io:5001/x !http://q.io:5000/x"},
		"plain HTTP":        {"q.io", false, "!http://q.io/v2/ !http://q.io:443/x !http://cdn.q.io/x http://other.example/x"},
		"storage":           {"q.io", false, "https://cdn.q.io/x https://other.example:9000/x?X-Amz-Signature=x"},
		"tokens":            {"q.io", false, "https://auth.example/token?service=x https://auth.example/token !https://auth.example:8443/x !http://auth.example/token !http://a.auth.example/"},
		"tokens elsewhere":  {"gitlab.example:5050", false, "https://gitlab.example/jwt/auth?scope=x&service=y !https://gitlab.example:9000/x"},
		"tokens over HTTP":  {"q.io", false, "!http://auth.example/token?account=me&service=x"},
		"insecure":          {"q.io:5000", true, "http://q.io:5000/v2/ https://q.io:5000/v2/ http://auth.example/token?service=x !http://q.io:5001/x"},
		"an address":        {"[fd00::1]:5000", false, "https://[fd00::1]:5000/v2/ !https://[fd00::1]:5001/v2/ https://[fd00::2]:5001/v2/"},
		"Docker's registry": {"docker.io", false, "https://registry-1.docker.io/v2/ !https://registry-1.docker.io:5000/ https://auth.docker.io/token?service=x"},
	} {
		sys := &types.SystemContext{DockerProxy: func(*url.URL) (*url.URL, error) { return nil, nil }}
		signatures := &url.URL{Scheme: "https", Host: "q.io:8080"}
		g := newGuarded(sys, c.host, c.insecure, signatures)
		for _, text := range strings.Fields(c.urls + " https://q.io:8080/signatures/x http://192.0.2.1/x") {
			text, refused := strings.CutPrefix(text, "!")
			u, err := url.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			_, err = g.proxyFor(u)
			if (err != nil) != refused || err != nil && (fault.KindOf(err) != fault.Refused || fault.HintOf(err) == "") {
				t.Errorf("%s: %s: %v", name, text, err)
			}
		}
	}
}

// TestRedacted: an error shows of a URL only what cannot grant access. Only the path of the
// registry's own protocol is shown.
func TestRedacted(t *testing.T) {
	for text, want := range map[string]string{
		`Get "https://q.io/v2/a/b/manifests/x": no`:               `Get "https://q.io/v2/a/b/manifests/x": no`,
		`Get "https://q.io/v2/a/b?token=secret": no`:              `Get "https://q.io/v2/a/b?…": no`,
		`Get "https://q.io/signed/secret/x": no`:                  `Get "https://q.io/…": no`,
		`Get "https://s3.example/secret/x?sig=secret#secret": no`: `Get "https://s3.example/…?…": no`,
		`Get "https://s3.example/v2/secret": no`:                  `Get "https://s3.example/…": no`,
		`Get "https://q.io/v2/a#secret": no`:                      `Get "https://q.io/v2/a#…": no`,
		`Get "https://q.io?secret": no`:                           `Get "https://q.io?…": no`,
		`Get "https://q.io#secret/@x": no`:                        `Get "https://q.io#…": no`,
		`proxy http://me:secret@p.example:3128/: no`:              `proxy http://p.example:3128/: no`,
		`proxy http://me:secret@p.example:3128: no`:               `proxy http://p.example:3128: no`,
		`Get "file:///etc/secret": no`:                            `Get "file:///…": no`,
		`cannot read docker://q.io/a/b:x: no`:                     `cannot read docker://q.io/a/b:x: no`,
		`Get "https://me:secret@q.io/v2/": no`:                    `Get "https://q.io/v2/": no`,
	} {
		if got := (redacted{errors.New(text), "q.io"}).Error(); got != want {
			t.Errorf("%s\nis %s\nwant %s", text, got, want)
		}
	}
}
