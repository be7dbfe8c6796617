package admission

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"
)

// Lifetimes. A certificate is valid from skew before it is made, for replicas and API servers with slow clocks.
const (
	skew            = time.Hour
	authorityLife   = 2 * 365 * 24 * time.Hour
	authorityRenew  = 180 * 24 * time.Hour // before its end
	servingLife     = 90 * 24 * time.Hour
	servingRenew    = 30 * 24 * time.Hour // before its end
	publishedBefore = time.Hour           // the next authority, before it is used
)

// pair is a certificate and its key, in PEM; both empty if there is none.
type pair struct{ Certificate, Key []byte }

// material is what the replicas share, in a Secret.
type material struct {
	Authority pair   // that has issued Serving
	Next      pair   // that follows; API servers trust it before it is used
	Serving   pair   // of the webhooks
	Old       []byte // certificates of earlier authorities that have not expired, in PEM
}

// bundle returns the authorities that API servers should trust.
func (m material) bundle() []byte {
	return slices.Concat(m.Authority.Certificate, m.Next.Certificate, m.Old)
}

// renew returns the material as it should be at a time, for a server with the given names, IP addresses last: the
// same material if nothing is to be done. published says whether API servers have been told to trust the bundle.
func (m material) renew(now time.Time, names []string, published bool) (material, error) {
	var err error
	if left(m.Authority, now) <= 0 { // there is none, or nobody can trust it any more
		m = material{Authority: m.Next}
		if left(m.Authority, now) <= 0 {
			if m.Authority, err = newAuthority(now); err != nil {
				return material{}, err
			}
		}
	}
	if left(m.Authority, now) < authorityRenew && left(m.Next, now) <= 0 {
		if m.Next, err = newAuthority(now); err != nil {
			return material{}, err
		}
		return m, nil // it is published before anything else happens
	}
	if published && left(m.Next, now) > 0 && age(m.Next, now) >= publishedBefore {
		m = material{Authority: m.Next, Old: append(slices.Clone(m.Authority.Certificate), m.Old...)}
	}
	m.Old = unexpired(m.Old, now)
	if left(m.Serving, now) < servingRenew || !m.Authority.issued(m.Serving, names) {
		if m.Serving, err = m.Authority.issue(names, now); err != nil {
			return material{}, err
		}
	}
	return m, nil
}

func (m material) equal(other material) bool {
	same := func(a, b pair) bool {
		return bytes.Equal(a.Certificate, b.Certificate) && bytes.Equal(a.Key, b.Key)
	}
	return same(m.Authority, other.Authority) && same(m.Next, other.Next) && same(m.Serving, other.Serving) && bytes.Equal(m.Old, other.Old)
}

// parse reads a pair; nil if there is none, or if it is damaged: then it is made again.
func (p pair) parse() (*x509.Certificate, *ecdsa.PrivateKey) {
	c, k := decode(p.Certificate), decode(p.Key)
	certificate, err := x509.ParseCertificate(c)
	if err != nil {
		return nil, nil
	}
	key, err := x509.ParseECPrivateKey(k)
	if err != nil || !key.PublicKey.Equal(certificate.PublicKey) {
		return nil, nil
	}
	return certificate, key
}

// left returns for how long a pair is still valid; 0 if there is none.
func left(p pair, now time.Time) time.Duration {
	certificate, _ := p.parse()
	if certificate == nil {
		return 0
	}
	return certificate.NotAfter.Sub(now)
}

// age returns how long ago a pair was made.
func age(p pair, now time.Time) time.Duration {
	certificate, _ := p.parse()
	if certificate == nil {
		return 0
	}
	return now.Sub(certificate.NotBefore.Add(skew))
}

// issued reports whether the authority has issued a certificate with these names.
func (p pair) issued(serving pair, names []string) bool {
	authority, _ := p.parse()
	certificate, _ := serving.parse()
	return authority != nil && certificate != nil && certificate.CheckSignatureFrom(authority) == nil && slices.Equal(namesOf(certificate), names)
}

// namesOf returns what a certificate is for: its names, then its IP addresses.
func namesOf(c *x509.Certificate) []string {
	all := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		all = append(all, ip.String())
	}
	return all
}

// unexpired returns the certificates that are still valid.
func unexpired(all []byte, now time.Time) (kept []byte) {
	for {
		block, rest := pem.Decode(all)
		if block == nil {
			return kept
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && now.Before(c.NotAfter) {
			kept = append(kept, pem.EncodeToMemory(block)...)
		}
		all = rest
	}
}

func newAuthority(now time.Time) (pair, error) {
	template := newTemplate("pivot's admission webhooks", now, authorityLife)
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign
	return sign(template, nil, nil)
}

// issue returns a certificate for a server with these names.
func (p pair) issue(names []string, now time.Time) (pair, error) {
	authority, key := p.parse()
	template := newTemplate(names[0], now, servingLife)
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	return sign(template, authority, key)
}

func newTemplate(name string, now time.Time, life time.Duration) *x509.Certificate {
	return &x509.Certificate{
		Subject:   pkix.Name{CommonName: name},
		NotBefore: now.Add(-skew), NotAfter: now.Add(life),
	}
}

// sign signs a certificate for a new key, with the key of an authority, or its own if that is nil.
func sign(template, authority *x509.Certificate, by *ecdsa.PrivateKey) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, fmt.Errorf("cannot make a key: %w", err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return pair{}, fmt.Errorf("cannot choose a serial number: %w", err)
	}
	if authority == nil {
		authority, by = template, key
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, authority, key.Public(), by)
	if err != nil {
		return pair{}, fmt.Errorf("cannot make the certificate of %s: %w", template.Subject.CommonName, err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return pair{}, fmt.Errorf("cannot write a key: %w", err)
	}
	encode := func(kind string, data []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}) }
	return pair{encode("CERTIFICATE", certificate), encode("EC PRIVATE KEY", secret)}, nil
}

func decode(text []byte) []byte {
	if block, _ := pem.Decode(text); block != nil {
		return block.Bytes
	}
	return nil
}
