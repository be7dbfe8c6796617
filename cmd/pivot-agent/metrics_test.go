package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"machine-pivot/internal/cluster/node"
	"machine-pivot/internal/fault"
)

// authority issues certificates.
type authority struct {
	*testing.T
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) authority {
	t.Helper()
	a := authority{T: t}
	a.certificate, a.key = a.issue(name, func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
	})
	return a
}

func (a authority) issue(name string, change func(*x509.Certificate)) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	if change != nil {
		change(c)
	}
	parent, signer := a.certificate, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	if err != nil {
		a.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		a.Fatal(err)
	}
	return parsed, key
}

// write writes a certificate and its key to files.
func (a authority) write(dir, name string) {
	a.Helper()
	c, key := a.issue(name, nil)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.Fatal(err)
	}
	put(a.T, filepath.Join(dir, "key"), "EC PRIVATE KEY", der)
	put(a.T, filepath.Join(dir, "cert"), "CERTIFICATE", c.Raw)
}

func put(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestMetricsByTLS: other machines get the metrics, and nothing else, with a certificate of the right authority;
// a new certificate is used without a restart.
func TestMetricsByTLS(t *testing.T) {
	ours, others := newAuthority(t, "ours"), newAuthority(t, "others")
	dir := t.TempDir()
	ours.write(dir, "first")
	put(t, filepath.Join(dir, "ca"), "CERTIFICATE", ours.certificate.Raw)
	f := metricsFlags{listen: "127.0.0.1:0", certificate: filepath.Join(dir, "cert"), key: filepath.Join(dir, "key"), clients: filepath.Join(dir, "ca")}
	server, err := f.serve(t.Context(), &node.Metrics{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	get := func(path string, issuer *authority) (status int, text, of string, err error) {
		config := &tls.Config{RootCAs: x509.NewCertPool()}
		config.RootCAs.AddCert(ours.certificate)
		if issuer != nil {
			c, key := issuer.issue("prometheus", nil)
			config.Certificates = []tls.Certificate{{Certificate: [][]byte{c.Raw}, PrivateKey: key}}
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
	for name, issuer := range map[string]*authority{"no certificate": nil, "one of another authority": &others} {
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
	ours.write(dir, "second")
	if _, _, of, err := get("/metrics", &ours); err != nil || of != "second" {
		t.Errorf("the certificate after a change is that of %q, %v", of, err)
	}
}

// TestMetricsFlags: metrics for other machines need all of the files, and files that can be used.
func TestMetricsFlags(t *testing.T) {
	ours := newAuthority(t, "ours")
	dir := t.TempDir()
	ours.write(dir, "first")
	file := func(name string) string { return filepath.Join(dir, name) }
	put(t, file("ca"), "CERTIFICATE", ours.certificate.Raw)
	for name, f := range map[string]metricsFlags{
		"no certificate":     {listen: "0.0.0.0:0"},
		"no address":         {certificate: file("cert"), key: file("key"), clients: file("ca")},
		"no authority":       {listen: "127.0.0.1:0", certificate: file("cert"), key: file("key")},
		"a missing file":     {listen: "127.0.0.1:0", certificate: file("none"), key: file("key"), clients: file("ca")},
		"no certificates":    {listen: "127.0.0.1:0", certificate: file("cert"), key: file("key"), clients: file("key")},
		"no usable address ": {listen: "nowhere", certificate: file("cert"), key: file("key"), clients: file("ca")},
	} {
		if server, err := f.serve(t.Context(), &node.Metrics{}); fault.KindOf(err) != fault.Usage {
			t.Errorf("%s: %v", name, err)
			if server != nil {
				server.Close()
			}
		}
	}
	if server, err := (&metricsFlags{}).serve(t.Context(), nil); server != nil || err != nil {
		t.Errorf("without flags: %v, %v", server, err)
	}
}
