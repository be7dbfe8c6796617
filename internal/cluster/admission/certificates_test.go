package admission

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"
)

// TestRenewal follows the certificates for six years, with a look each day. At each time an API server with the bundle
// of the day before, and a clock half an hour behind, must trust the server.
func TestRenewal(t *testing.T) {
	names := []string{"pivot.example.svc", "127.0.0.1"}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var m material
	var trusted []byte
	authorities, servings := 0, 0
	for range 6 * 365 {
		should, err := m.renew(now, names, true)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(should.Authority.Certificate, m.Authority.Certificate) {
			authorities++
		}
		if !bytes.Equal(should.Serving.Certificate, m.Serving.Certificate) {
			servings++
		}
		if m = should; len(trusted) == 0 {
			trusted = m.bundle()
		}
		if rest := left(m.Authority, now); rest < authorityRenew-3*24*time.Hour {
			t.Fatalf("%s: the next authority is not used, and this one ends in %s", now, rest)
		}
		certificate, key := m.Serving.parse()
		if certificate == nil || key == nil {
			t.Fatalf("%s: there is no certificate", now)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(trusted)
		for _, name := range names {
			if _, err := certificate.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: now.Add(-30 * time.Minute)}); err != nil {
				t.Fatalf("%s: %v", now, err)
			}
		}
		if n := bytes.Count(m.bundle(), []byte("BEGIN")); n > 3 {
			t.Fatalf("%s: the bundle has %d certificates", now, n)
		}
		trusted = m.bundle()
		now = now.AddDate(0, 0, 1)
	}
	if authorities != 4 || servings < 30 || servings > 45 {
		t.Errorf("%d authorities and %d certificates", authorities, servings)
	}
}

// TestRenewalUnpublished: an authority that API servers do not trust yet is not used, unless the old one ends.
func TestRenewalUnpublished(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	names := []string{"a.example"}
	first, err := material{}.renew(now, names, false)
	if err != nil {
		t.Fatal(err)
	}
	m := first
	for range 100 {
		if m, err = m.renew(now.Add(authorityLife-time.Minute), names, false); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(m.Authority.Certificate, first.Authority.Certificate) || len(m.Next.Certificate) == 0 {
		t.Error("the next authority is used before it is published")
	}
	if m, err = m.renew(now.Add(authorityLife), names, false); err != nil || bytes.Equal(m.Authority.Certificate, first.Authority.Certificate) {
		t.Errorf("the authority that has ended is used: %v", err)
	}
	for what, damaged := range map[string]material{
		"a key of another":                 {Authority: pair{first.Authority.Certificate, m.Authority.Key}, Serving: first.Serving},
		"a certificate with another's key": {Authority: first.Authority, Serving: pair{first.Serving.Certificate, m.Serving.Key}},
		"a certificate with a damaged key": {Authority: first.Authority, Serving: pair{first.Serving.Certificate, []byte("y")}},
		"an authority with a damaged key":  {Authority: pair{first.Authority.Certificate, []byte("y")}, Serving: first.Serving},
		"no PEM":                           {Authority: pair{[]byte("x"), []byte("y")}, Serving: first.Serving, Old: []byte("z")},
		"other names":                      {Authority: first.Authority},
	} {
		whole, err := damaged.renew(now, names, true)
		if err != nil || !whole.Authority.issued(whole.Serving, names) || len(whole.Old) > 0 {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := tls.X509KeyPair(whole.Serving.Certificate, whole.Serving.Key); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if again, err := first.renew(now, names, true); err != nil || !again.equal(first) {
		t.Errorf("it is made again: %v", err)
	}
	if other, err := first.renew(now, []string{"b.example"}, true); err != nil || other.equal(first) {
		t.Errorf("other names need another certificate: %v", err)
	}
}

// TestNextAuthority: the next authority is made when the one before has less than authorityRenew left, and not before.
func TestNextAuthority(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	first, err := material{}.renew(now, []string{"a.example"}, false)
	if err != nil {
		t.Fatal(err)
	}
	for before, want := range map[time.Duration]bool{0: false, time.Second: true} {
		m, err := first.renew(now.Add(authorityLife-authorityRenew+before), []string{"a.example"}, false)
		if made := len(m.Next.Certificate) > 0; err != nil || made != want {
			t.Errorf("%s later: %v, %v", before, made, err)
		}
	}
}
