package main

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"machine-pivot/internal/cluster/node"
	"machine-pivot/internal/fault"
	"machine-pivot/test/tools/attack"
	"machine-pivot/test/tools/authority"
)

// lockedText is a text to which several goroutines add.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestMetricsByTLS: other machines get the metrics, and nothing else, with a certificate of the right authority;
// a new certificate is used without a restart.
func TestMetricsByTLS(t *testing.T) {
	ours, others := authority.New(t, "ours"), authority.New(t, "others")
	dir := t.TempDir()
	ours.Write(dir, "first")
	file := func(name string) string { return filepath.Join(dir, name) }
	f := metricsFlags{listen: "127.0.0.1:0", certificate: file(authority.CertFile), key: file(authority.KeyFile), clients: file(authority.CAFile)}
	said, log := &lockedText{}, logrus.New()
	log.SetOutput(said)
	log.SetFormatter(&logrus.JSONFormatter{})
	server, err := f.serve(t.Context(), &node.Metrics{}, log)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	get := func(path string, issuer *authority.Authority) (status int, text, of string, err error) {
		config := &tls.Config{RootCAs: ours.Pool()}
		if issuer != nil {
			config.Certificates = []tls.Certificate{issuer.Issue("prometheus")}
		}
		transport := &http.Transport{TLSClientConfig: config}
		defer transport.CloseIdleConnections()
		answer, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Get("https://" + server.Addr + path)
		if err != nil {
			return 0, "", "", err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		return answer.StatusCode, string(body), answer.TLS.PeerCertificates[0].Subject.CommonName, err
	}
	if status, text, of, err := get("/metrics", &ours); err != nil || status != http.StatusOK || of != "first" || !strings.Contains(text, "pivot_agent_failing 0") {
		t.Errorf("%d, %q of %s, %v", status, text, of, err)
	}
	if status, _, _, err := get("/healthz", &ours); err != nil || status != http.StatusNotFound {
		t.Errorf("another path: %d, %v", status, err)
	}
	for name, issuer := range map[string]*authority.Authority{"no certificate": nil, "one of another authority": &others} {
		if status, text, _, err := get("/metrics", issuer); err == nil {
			t.Errorf("%s: %d, %s", name, status, text)
		}
	}
	if answer, err := http.Get("http://" + server.Addr + "/metrics"); err == nil {
		answer.Body.Close()
		if answer.StatusCode != http.StatusBadRequest {
			t.Errorf("without TLS: %s", answer.Status)
		}
	}
	const refused = "didn't provide a certificate" // said after the client was
	for end := time.Now().Add(time.Minute); !strings.Contains(said.String(), refused); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the log does not say who was refused:\n%s", said)
		}
	}
	for line := range strings.Lines(said.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("the log has %q", line)
		}
	}
	ours.Write(dir, "second")
	if _, _, of, err := get("/metrics", &ours); err != nil || of != "second" {
		t.Errorf("the certificate after a change is that of %q, %v", of, err)
	}
}

// TestMetricsFlags: metrics for other machines need all of the files.
func TestMetricsFlags(t *testing.T) {
	dir := t.TempDir()
	authority.New(t, "ours").Write(dir, "first")
	file := func(name string) string { return filepath.Join(dir, name) }
	const cert, key, ca = authority.CertFile, authority.KeyFile, authority.CAFile
	for name, f := range map[string]metricsFlags{
		"no certificate":     {listen: "0.0.0.0:0"},
		"no address":         {certificate: file(cert), key: file(key), clients: file(ca)},
		"no authority":       {listen: "127.0.0.1:0", certificate: file(cert), key: file(key)},
		"no usable address ": {listen: "nowhere", certificate: file(cert), key: file(key), clients: file(ca)},
	} {
		if server, err := f.serve(t.Context(), &node.Metrics{}, logrus.New()); fault.KindOf(err) != fault.Usage {
			t.Errorf("%s: %v", name, err)
			if server != nil {
				server.Close()
			}
		}
	}
	if server, err := (&metricsFlags{}).serve(t.Context(), nil, logrus.New()); server != nil || err != nil {
		t.Errorf("without flags: %v, %v", server, err)
	}
}

// TestAddressOfAnother: who has an address of the agent, for which nobody needs a right, does not end its work; the agent
// answers once it is free. Neither does a file that is not there yet.
func TestAddressOfAnother(t *testing.T) {
	ours, dir := authority.New(t, "ours"), t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ours.Pool(), Certificates: []tls.Certificate{ours.Issue("prometheus")}}}
	for scheme, start := range map[string]func(address string) error{
		"http": func(address string) error {
			return serve(t.Context(), address, &node.Agent{Log: logrus.New(), Metrics: &node.Metrics{}})
		},
		"https": func(address string) error {
			f := metricsFlags{listen: address, certificate: file(authority.CertFile), key: file(authority.KeyFile), clients: file(authority.CAFile)}
			server, err := f.serve(t.Context(), &node.Metrics{}, logrus.New())
			if err == nil {
				t.Cleanup(func() { server.Close() })
			}
			return err
		},
	} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			other, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			address := other.Addr().String()
			if err := start(address); err != nil {
				t.Fatal(err)
			}
			ours.Write(dir, "late")
			other.Close()
			for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
				if r, err := (&http.Client{Transport: transport}).Get(scheme + "://" + address + "/metrics"); err == nil {
					r.Body.Close()
					return
				} else if time.Now().After(end) {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestStuck: an agent ends if it makes no step at three looks in a row, and only then.
func TestStuck(t *testing.T) {
	steps, looks := []bool{false, false, true, false, true, false, false, false}, 0
	alive := func(time.Time) bool { looks++; return steps[looks-1] }
	if !stuck(nil, alive, time.Millisecond) || looks != len(steps) {
		t.Errorf("after %d looks", looks)
	}
	ended := make(chan struct{})
	close(ended)
	if stuck(ended, alive, time.Hour) {
		t.Error("an agent that has ended")
	}
}

// TestAttacks are attempts of strangers at the agent's listeners: of each process of its node, and of other machines.
func TestAttacks(t *testing.T) {
	ours, others, dir := authority.New(t, "ours"), authority.New(t, "others"), t.TempDir()
	ours.Write(dir, "first")
	file := func(name string) string { return filepath.Join(dir, name) }
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	f := metricsFlags{listen: "127.0.0.1:0", certificate: file(authority.CertFile), key: file(authority.KeyFile), clients: file(authority.CAFile)}
	server, err := f.serve(t.Context(), &node.Metrics{Version: "secretversion"}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	local := free.Addr().String()
	free.Close()
	if err := serve(t.Context(), local, &node.Agent{Log: quiet, Metrics: &node.Metrics{}}); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ours.Pool(), Certificates: []tls.Certificate{ours.Issue("prometheus")}}, DisableKeepAlives: true}
	well := func(url string) func() error {
		return func() error {
			r, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Get(url)
			if err == nil {
				err = r.Body.Close()
			}
			return err
		}
	}
	attack.Listener{Name: "the agent's health and metrics", Address: local, Path: "/metrics", Well: well("http://" + local + "/metrics")}.Try(t)
	attack.Listener{Name: "the agent's metrics by TLS", Address: server.Addr, TLS: true, Path: "/metrics", Secret: "secretversion", Well: well("https://" + server.Addr + "/metrics"),
		Certificates: []tls.Certificate{others.Issue("prometheus"), {}}}.Try(t)
}
