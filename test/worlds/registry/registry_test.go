package registry

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/random"
	"golang.org/x/sys/unix"
)

func start(t *testing.T) (*Registry, *http.Client) {
	t.Helper()
	return startWith(t, Options{Names: []string{"registry.example"}})
}

func startWith(t *testing.T, opts Options) (*Registry, *http.Client) {
	t.Helper()
	r, err := Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(r.CA()) {
		t.Fatal("the CA is not PEM")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	t.Cleanup(transport.CloseIdleConnections)
	return r, &http.Client{Transport: transport}
}

func request(t *testing.T, r *Registry, path, rang string) *http.Request {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, "https://"+r.Host()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("puller", "pull-secret")
	if rang != "" {
		req.Header.Set("Range", rang)
	}
	return req
}

func get(t *testing.T, r *Registry, client *http.Client, path, rang string) (int, string, error) {
	t.Helper()
	resp, err := client.Do(request(t, r, path, rang))
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

func TestRegistry(t *testing.T) {
	r, client := start(t)
	img, err := random.Image(10000, 1)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := r.Push(t.Context(), "a/b", "tag", img)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := img.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tag", digest} {
		if status, body, err := get(t, r, client, "/v2/a/b/manifests/"+name, ""); status != 200 || body != string(raw) || err != nil {
			t.Errorf("%s: status %d, %v", name, status, err)
		}
	}
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	layer, err := layers[0].Digest()
	if err != nil {
		t.Fatal(err)
	}
	blob := "/v2/a/b/blobs/" + layer.String()
	_, whole, err := get(t, r, client, blob, "")
	if err != nil || len(whole) < 10000 {
		t.Fatal(len(whole), err)
	}
	if status, rest, err := get(t, r, client, blob, "bytes=100-"); status != 206 || rest != whole[100:] || err != nil {
		t.Errorf("resumed: status %d, %d bytes, %v", status, len(rest), err)
	}

	r.CutBlobs(1, 5000)
	if _, part, err := get(t, r, client, blob, ""); !errors.Is(err, io.ErrUnexpectedEOF) || part != whole[:5000] {
		t.Errorf("cut: %d bytes, %v", len(part), err)
	}
	r.FailNext(1, 503)
	if status, _, err := get(t, r, client, "/v2/", ""); status != 503 || err != nil {
		t.Errorf("failing: status %d, %v", status, err)
	}
	if err := r.FlipByte(layer.String(), -1); err != nil {
		t.Error(err)
	}
	if _, damaged, err := get(t, r, client, blob, ""); err != nil || damaged == whole || damaged[:len(damaged)-1] != whole[:len(whole)-1] {
		t.Errorf("damaged: %v", err)
	}
	if log := r.RequestLog(); len(log) != r.Requests() || log[0] != "GET /v2/a/b/manifests/tag" {
		t.Errorf("log %q", log)
	}
}

func TestDown(t *testing.T) {
	r, client := start(t)
	for range 3 {
		if err := r.SetDown(true); err != nil {
			t.Fatal(err)
		}
		if _, _, err := get(t, r, client, "/v2/", ""); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("down: %v", err)
		}
		if err := r.SetDown(false); err != nil {
			t.Fatal(err)
		}
		if status, _, err := get(t, r, client, "/v2/", ""); status != 200 || err != nil {
			t.Errorf("up: status %d, %v", status, err)
		}
	}
}

func TestPassword(t *testing.T) {
	r, client := start(t)
	resp, err := client.Get("https://" + r.Host() + "/v2/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 401 || !strings.HasPrefix(resp.Header.Get("Www-Authenticate"), "Basic ") {
		t.Errorf("status %d, %v", resp.StatusCode, resp.Header)
	}
	if secret := string(r.PullSecret("10.0.2.2:1")); secret != `{"auths":{"10.0.2.2:1":{"auth":"cHVsbGVyOnB1bGwtc2VjcmV0"}}}` {
		t.Error(secret)
	}
}
