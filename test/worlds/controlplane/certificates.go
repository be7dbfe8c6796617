package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// authority issues the certificates of a control plane and of its clients.
type authority struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

// pair is a certificate and its key, in PEM.
type pair struct{ certificate, key []byte }

func newAuthority() (authority, error) {
	template, err := newCertificate(pkix.Name{CommonName: "control plane of a test"})
	if err != nil {
		return authority{}, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage |= x509.KeyUsageCertSign
	key, err := newKey()
	if err != nil {
		return authority{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return authority{}, fmt.Errorf("cannot make a certificate authority: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	return authority{key, certificate}, err
}

// pem returns the authority's certificate.
func (a authority) pem() []byte { return encode("CERTIFICATE", a.certificate.Raw) }

// server issues a certificate for servers of this host, which guests of QEMU's user network know as
// 10.0.2.2.
func (a authority) server() (pair, error) {
	template, err := newCertificate(pkix.Name{CommonName: "kube-apiserver"})
	if err != nil {
		return pair{}, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames = []string{"localhost"}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 0, 2, 2)}
	return a.issue(template)
}

// client issues a certificate for a user, as Kubernetes reads it: the common name is the user's, each
// organization is a group.
func (a authority) client(user string, groups []string) (pair, error) {
	template, err := newCertificate(pkix.Name{CommonName: user, Organization: groups})
	if err != nil {
		return pair{}, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(template)
}

func newCertificate(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		// Guests have clocks that are wrong by hours.
		NotBefore: time.Now().AddDate(-1, 0, 0),
		NotAfter:  time.Now().AddDate(1, 0, 0),
		KeyUsage:  x509.KeyUsageDigitalSignature,
	}, err
}

func (a authority) issue(template *x509.Certificate) (pair, error) {
	key, err := newKey()
	if err != nil {
		return pair{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return pair{}, fmt.Errorf("cannot issue the certificate of %s: %w", template.Subject.CommonName, err)
	}
	text, err := encodeKey(key)
	return pair{encode("CERTIFICATE", der), text}, err
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("cannot make a key: %w", err)
	}
	return key, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("cannot write a key: %w", err)
	}
	return encode("EC PRIVATE KEY", der), nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
