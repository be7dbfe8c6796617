package source

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	digestlib "github.com/opencontainers/go-digest"
	imgspec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/blobinfocache/none"
	"go.podman.io/image/v5/types"
)

// The tests in this file check the assumptions of this package about undocumented behaviour of
// the image library. They fail if a release of the library changes it.

// libraryBlob returns the only blob of the servers in these tests.
func libraryBlob() ([]byte, types.BlobInfo) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 4096)
	sum := sha256.Sum256(content)
	return content, types.BlobInfo{Digest: digestlib.NewDigestFromBytes(digestlib.SHA256, sum[:]), Size: int64(len(content))}
}

// library is a registry that serves blobs, as the library has opened it.
type library struct {
	*registry
	types.ImageSource
	asked []string // the URLs of all requests, in order
}

// openLibrary opens a registry that serves blobs with a handler. challenge is its demand for
// credentials, in which {url} stands for its URL; "" if it has none. The user is "u" with the
// password "p", who is given the token "t". start starts the server, with TLS or without.
func openLibrary(t *testing.T, challenge string, start func(*httptest.Server), blobs http.HandlerFunc) *library {
	t.Helper()
	var server *httptest.Server
	allowed := map[string]string{"": "", "Basic": "Basic dTpw", "Bearer": "Bearer t"}[strings.Split(challenge, " ")[0]]
	server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/token" && r.Header.Get("Authorization") == "Basic dTpw":
			_, _ = io.WriteString(w, `{"token":"t"}`)
		case r.Header.Get("Authorization") != allowed:
			w.Header().Set("Www-Authenticate", strings.ReplaceAll(challenge, "{url}", server.URL))
			w.WriteHeader(http.StatusUnauthorized)
		case strings.Contains(r.URL.Path, "/blobs/"):
			blobs(w, r)
		case strings.Contains(r.URL.Path, "/manifests/"):
			w.Header().Set("Content-Type", imgspec.MediaTypeImageManifest)
			_, _ = io.WriteString(w, `{"schemaVersion":2}`)
		}
	}))
	server.EnableHTTP2 = true // the library does not use it yet
	start(server)
	t.Cleanup(server.Close)
	_, host, _ := strings.Cut(server.URL, "://")
	named, err := reference.ParseNormalizedNamed(host + "/a/b:x")
	if err != nil {
		t.Fatal(err)
	}
	ref, err := docker.NewReference(named)
	if err != nil {
		t.Fatal(err)
	}
	l := &library{}
	sys := &types.SystemContext{
		DockerInsecureSkipTLSVerify: types.OptionalBoolTrue, SystemRegistriesConfPath: noRegistriesConf, SystemRegistriesConfDirPath: noRegistriesConfDir,
		DockerAuthConfig: &types.DockerAuthConfig{Username: "u", Password: "p"},
		DockerProxy:      func(u *url.URL) (*url.URL, error) { l.asked = append(l.asked, u.String()); return nil, nil },
	}
	sys.DockerProxy = newGuarded(sys, host, true, nil).proxyFor
	l.registry = newRegistry(sys, named, nil)
	if l.ImageSource, err = ref.NewImageSource(l.observe(t.Context(), 0, maxOpened), sys); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// servePart serves the part of a blob that is requested.
func servePart(w http.ResponseWriter, r *http.Request) {
	content, _ := libraryBlob()
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

// TestRanges: from a registry with support for ranges only the part is requested. A registry
// that responds with the whole blob, another part, several parts or an error is recognized.
func TestRanges(t *testing.T) {
	content, info := libraryBlob()
	asking := func(span string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			r.Header.Set("Range", span)
			servePart(w, r)
		}
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		err    error
		status int
	}{
		"part":          {answer: servePart},
		"all":           {answer: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) }, err: errNoRanges},
		"another part":  {answer: asking("bytes=100-2000"), err: errNoRanges},
		"several parts": {answer: asking("bytes=1000-2000,3000-4000"), err: errNoRanges},
		"not stated":    {answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusPartialContent) }, err: errNoRanges},
		"no part":       {answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusRequestedRangeNotSatisfiable) }, status: 416},
		"denied":        {answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, status: 403},
		"overloaded":    {answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, status: 503},
	} {
		t.Run(name, func(t *testing.T) {
			l := openLibrary(t, "", (*httptest.Server).StartTLS, c.answer)
			body, err := l.openRange(t.Context(), info, 1000)
			if c.err != nil || c.status != 0 {
				if !errors.Is(err, c.err) && c.err != nil || statusOf(err) != c.status {
					t.Errorf("%v", err)
				}
				return
			}
			checkRest(t, body, err)
		})
	}
	if _, err := (*registry)(nil).openRange(t.Context(), info, 1000); !errors.Is(err, errNoRanges) {
		t.Errorf("of a local image: %v", err)
	}
}

// checkRest checks the part of the blob from byte 1000 on.
func checkRest(t *testing.T, body io.ReadCloser, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	content, _ := libraryBlob()
	got, err := io.ReadAll(body)
	if err := errors.Join(err, body.Close()); err != nil || !bytes.Equal(got, content[1000:]) {
		t.Errorf("%d bytes, want %d: %v", len(got), len(content)-1000, err)
	}
}

// TestRangesAreAuthorized: the request for a part has what the library has found out about the registry: the protocol,
// the user's password, or the token, which is not requested again. It uses the same proxy and guard, and takes no
// credentials to another host.
func TestRangesAreAuthorized(t *testing.T) {
	_, info := libraryBlob()
	var elsewhere []string // the credentials that came to another host
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		elsewhere = append(elsewhere, r.Header.Get("Authorization"))
		servePart(w, r)
	}))
	defer other.Close()
	port := other.URL[strings.LastIndexByte(other.URL, ':'):]
	for name, challenge := range map[string]string{
		"nothing": "", "a password": `Basic realm="x"`, "a token": `Bearer realm="{url}/token",service="x"`,
	} {
		for _, start := range []func(*httptest.Server){(*httptest.Server).StartTLS, (*httptest.Server).Start} {
			for to, want := range map[string]string{"": "", "http://localhost" + port: "", "http://127.0.0.1" + port: "must not go"} {
				t.Run(name+" to "+to, func(t *testing.T) {
					l := openLibrary(t, challenge, start, func(w http.ResponseWriter, r *http.Request) {
						if to == "" {
							servePart(w, r)
							return
						}
						http.Redirect(w, r, to+r.URL.Path, http.StatusTemporaryRedirect)
					})
					before := len(l.asked)
					elsewhere = nil
					body, err := l.openRange(t.Context(), info, 1000)
					if want != "" {
						if err == nil || !strings.Contains(err.Error(), want) || len(elsewhere) > 0 {
							t.Errorf("%v, there came %q", err, elsewhere)
						}
						return
					}
					checkRest(t, body, err)
					if hops := len(l.asked) - before; hops != len(elsewhere)+1 || strings.Join(elsewhere, "") != "" {
						t.Errorf("the proxy was asked for %q; elsewhere there came %q", l.asked[before:], elsewhere)
					}
				})
			}
		}
	}
}

// TestRangesAfterANewToken: a token that the library requests while it opens a blob is used, too.
func TestRangesAfterANewToken(t *testing.T) {
	_, info := libraryBlob()
	l := openLibrary(t, `Bearer realm="{url}/token",service="x"`, (*httptest.Server).StartTLS, servePart)
	l.authorization = "Bearer old"
	if _, err := l.openRange(t.Context(), info, 1000); statusOf(err) != http.StatusUnauthorized {
		t.Errorf("with an old token: %v", err)
	}
	whole, _, err := l.GetBlob(l.observe(t.Context(), 0, maxOpened), info, none.NoCache)
	if err != nil {
		t.Fatal(err)
	}
	_ = whole.Close()
	body, err := l.openRange(t.Context(), info, 1000)
	checkRest(t, body, err)

	l.authorization, l.generation = "Bearer new", 1
	if whole, _, err = l.GetBlob(l.observe(t.Context(), 0, maxOpened), info, none.NoCache); err != nil {
		t.Fatal(err)
	}
	_ = whole.Close()
	if l.authorization != "Bearer new" {
		t.Errorf("a source that was replaced has brought back its token: %s", l.authorization)
	}
}

// TestWhole: whole blobs are requested one after the other on one connection, as the rest of a blob is.
// What a registry refuses is left to the library, unless it may be there later.
func TestWhole(t *testing.T) {
	content, info := libraryBlob()
	connections := map[string]bool{}
	status := 0
	l := openLibrary(t, `Bearer realm="{url}/token",service="x"`, (*httptest.Server).StartTLS, func(w http.ResponseWriter, r *http.Request) {
		connections[r.RemoteAddr] = true
		if status != 0 {
			w.WriteHeader(status)
			return
		}
		servePart(w, r)
	})
	for range 3 {
		body, err := l.openWhole(t.Context(), info)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(body)
		if err := errors.Join(err, body.Close()); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		body, err = l.openRange(t.Context(), info, 1000)
		checkRest(t, body, err)
	}
	if len(connections) != 1 {
		t.Errorf("%d connections", len(connections))
	}
	for status = range map[int]bool{401: true, 403: true, 404: true, 416: true, 429: false, 500: false, 503: false} {
		_, err := l.openWhole(t.Context(), info)
		if transient := isTransientStatus(status); statusOf(err) != status || isForLibrary(err) == transient {
			t.Errorf("%d: %v, for the library: %t", status, err, isForLibrary(err))
		}
	}
	info.URLs = []string{"https://127.0.0.1/x"}
	if _, err := l.openWhole(t.Context(), info); !isForLibrary(err) {
		t.Errorf("a blob elsewhere: %v", err)
	}
	if _, err := (*registry)(nil).openWhole(t.Context(), info); !isForLibrary(err) {
		t.Errorf("a local blob: %v", err)
	}
}

// TestCertificates: the certificates for a registry are found where the library looks.
func TestCertificates(t *testing.T) {
	root := t.TempDir()
	t.Setenv("HOME", root+"/home")
	ref, err := docker.ParseReference("//127.0.0.1:1/a/b:x")
	if err != nil {
		t.Fatal(err)
	}
	library := func() error {
		_, err := ref.NewImageSource(t.Context(), &types.SystemContext{RootForImplicitAbsolutePaths: root, SystemRegistriesConfPath: noRegistriesConf, SystemRegistriesConfDirPath: noRegistriesConfDir})
		return err
	}
	h := &Host{Root: root}
	if got, err := h.certificates("127.0.0.1:1"); err != nil || got != nil || strings.Contains(library().Error(), "missing key") {
		t.Errorf("there are none: %v, %v, %v", got, err, library())
	}
	for n, place := range []string{"/etc/docker/certs.d", "/usr/share/containers/certs.d", "/etc/containers/certs.d"} { // the later one counts
		dir, name := filepath.Join(root, place, "127.0.0.1:1"), fmt.Sprint("of-place-", n)
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name+".cert"), nil, 0o644)); err != nil {
			t.Fatal(err)
		}
		_, err := h.certificates("127.0.0.1:1")
		if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, name+".cert")+" has no key") || !strings.Contains(library().Error(), "missing key "+name) {
			t.Errorf("in %s: %v; the library: %v", dir, err, library())
		}
	}
}

// TestStatusOfAnswers: the status of a response is found whatever its body is: the protocol's
// JSON, or the text of a proxy or web server in front of the registry.
func TestStatusOfAnswers(t *testing.T) {
	_, info := libraryBlob()
	for _, status := range []int{400, 401, 403, 404, 405, 408, 410, 451, 500, 502, 503, 504} {
		for kind, body := range map[string]string{
			"empty": "", "text": "go away", "HTML": "<!DOCTYPE html>\n<html>StatusCode: 599, </html>", "an object": "{}", "no errors": `{"errors":[]}`,
		} {
			t.Run(fmt.Sprintf("%d with %s", status, kind), func(t *testing.T) {
				source := openLibrary(t, "", (*httptest.Server).StartTLS, func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(status)
					_, _ = io.WriteString(w, body)
				})
				_, _, err := source.GetBlob(t.Context(), info, none.NoCache)
				if got := statusOf(err); got != status {
					t.Errorf("status %d of: %v", got, err)
				}
			})
		}
	}
}
