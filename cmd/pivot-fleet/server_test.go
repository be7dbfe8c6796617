package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"machine-pivot/internal/cli"
	"machine-pivot/test/worlds/controlplane"
)

// TestCertificates: a server presents the certificate that its files have now, and knows a client's certificate
// by its authority.
func TestCertificates(t *testing.T) {
	dir := t.TempDir()
	f := serverFlags{cert: filepath.Join(dir, "tls.crt"), key: filepath.Join(dir, "tls.key"), clientCA: filepath.Join(dir, "ca.crt")}
	f.write(t, "first")
	authority, client := f.write(t, "client"), f.pair(t)
	if err := os.WriteFile(f.clientCA, authority, 0o600); err != nil {
		t.Fatal(err)
	}
	f.write(t, "first")
	watcher, err := certwatcher.New(f.cert, f.key)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() { _ = watcher.WithWatchInterval(10 * time.Millisecond).Start(ctx) }()
	settings, err := f.tls(t.Context(), watcher)
	if err != nil {
		t.Fatal(err)
	}
	if name, verified := handshake(t, settings, &client); name != "first" || !verified {
		t.Errorf("the server is %q, the client is verified: %v", name, verified)
	}
	f.write(t, "stranger")
	stranger := f.pair(t)
	if name, verified := handshake(t, settings, &stranger); name != "" || verified {
		t.Errorf("a certificate of another authority: the server is %q, the client is verified: %v", name, verified)
	}
	f.write(t, "second")
	controlplane.Eventually(t, "the new certificate is presented", func(context.Context) bool {
		name, _ := handshake(t, settings, nil)
		return name == "second"
	})
}

// write writes a new certificate that has signed itself, and returns it in PEM.
func (f serverFlags) write(t *testing.T, name string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for path, data := range map[string][]byte{f.cert: certificate, f.key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certificate
}

// pair returns the certificate that was written last.
func (f serverFlags) pair(t *testing.T) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// handshake returns the name of the server, "" if it refuses the client, and whether it has verified the client.
func handshake(t *testing.T, settings *tls.Config, client *tls.Certificate) (name string, verified bool) {
	t.Helper()
	near, far := net.Pipe()
	defer near.Close()
	server := tls.Server(far, settings)
	ended := make(chan error, 1)
	go func() { ended <- server.HandshakeContext(t.Context()); _ = far.Close() }()
	ours := &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12} // in 1.3, a client does not wait for the verdict about it
	if client != nil {
		ours.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return client, nil }
	}
	c := tls.Client(near, ours)
	err := c.HandshakeContext(t.Context())
	if served := <-ended; err != nil || served != nil {
		return "", false
	}
	return c.ConnectionState().PeerCertificates[0].Subject.CommonName, len(server.ConnectionState().VerifiedChains) > 0
}

// TestCertificateLimits: the files of the certificate are read whole, and again, so they have to be files with an end.
func TestCertificateLimits(t *testing.T) {
	credentials := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"a","cluster":{"server":"https://127.0.0.1:1"}}],"contexts":[{"name":"a","context":{"cluster":"a"}}],"current-context":"a"}`
	if err := os.WriteFile(credentials, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := serverCommand(cli.Build{Version: "1"})
	cmd.SetArgs([]string{"--kubeconfig", credentials, "--tls-cert", "/dev/zero", "--tls-key", "/dev/zero"})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot read /dev/zero: it is no regular file") {
		t.Error(err)
	}
}
