package provision_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coreos/ignition/v2/config"

	"machine-pivot/internal/author/authored"
	"machine-pivot/internal/author/provision"
)

const pointedTo = "https://mcs.example:22623/config/worker"

// TestPointer compares a pointer with a golden file, and has Ignition's own parser read it in each version.
func TestPointer(t *testing.T) {
	p := provision.Pointer{URL: pointedTo, Token: "a-token"}
	got, err := p.Config("3.1.0")
	want, readErr := os.ReadFile("testdata/pointer.ign")
	if err != nil || readErr != nil || string(got)+"\n" != string(want) {
		t.Errorf("%v %v: %s, want %s", err, readErr, got, want)
	}
	p.CA = authority(t)
	for _, version := range authored.IgnitionVersions() {
		raw, err := p.Config(version)
		if version < "3.1.0" {
			if err == nil || !strings.Contains(err.Error(), "from version 3.1.0 on") {
				t.Errorf("%s: %v", version, err)
			}
			continue
		}
		read, report, parseErr := config.Parse(raw)
		if err != nil || parseErr != nil || len(report.Entries) > 0 {
			t.Errorf("%s: %v, %v, %v: %s", version, err, parseErr, report, raw)
			continue
		}
		merge, trusted := read.Ignition.Config.Merge, read.Ignition.Security.TLS.CertificateAuthorities
		if len(merge) != 1 || *merge[0].Source != pointedTo || len(merge[0].HTTPHeaders) != 1 || *merge[0].HTTPHeaders[0].Value != "Bearer a-token" || len(trusted) != 1 {
			t.Errorf("%s: %s", version, raw)
		}
		if len(raw) > 4<<10 {
			t.Errorf("%s: %d bytes are much for user data", version, len(raw))
		}
	}
	old, err := provision.Pointer{URL: pointedTo}.Config("2.2.0")
	if err != nil || !strings.Contains(string(old), `"append":[{"source":"`+pointedTo+`"`) {
		t.Errorf("without a token: %s, %v", old, err)
	}
}

// TestPointerAnew: comments and the like of a bundle are not in the user data, and hosts can be addresses.
func TestPointerAnew(t *testing.T) {
	for _, url := range []string{pointedTo, "https://mcs.example/config/worker", "https://[2001:db8::1]:22623/config/gpu.a", "https://192.0.2.1:1/config/a", "https://[::1]/config/a"} {
		raw, err := provision.Pointer{URL: url, CA: slices.Concat([]byte("comment: S3CRET\n"), authority(t), []byte("S3CRET"))}.Config("3.1.0")
		if err != nil || strings.Contains(string(raw), "S3CRET") || !strings.Contains(string(raw), "BEGIN%20CERTIFICATE") {
			t.Errorf("%s: %s, %v", url, raw, err)
		}
	}
}

func TestPointerRefused(t *testing.T) {
	for _, c := range []struct {
		at   provision.Pointer
		want string
	}{
		{provision.Pointer{}, "it is no URL"},
		{provision.Pointer{URL: "mcs.example/config/worker"}, "it is no URL"},
		{provision.Pointer{URL: "ftp://mcs.example/config/worker"}, "it is no URL"},
		{provision.Pointer{URL: "https://me:secret@mcs.example/config/worker"}, "it is no URL"},
		{provision.Pointer{URL: "https://mcs.example/worker"}, "/config/ROLE"},
		{provision.Pointer{URL: "https://mcs.example/config/"}, "/config/ROLE"},
		{provision.Pointer{URL: "https://mcs.example/config/../worker"}, "/config/ROLE"},
		{provision.Pointer{URL: "http://mcs.example/config/worker", Token: "a"}, "need https"},
		{provision.Pointer{URL: pointedTo, CA: []byte("x")}, "no certificate in PEM"},
		{provision.Pointer{URL: pointedTo, CA: []byte{}}, "no certificate in PEM"},
		{provision.Pointer{URL: "https://256.1.1.1/config/worker"}, "it is no URL"},
		{provision.Pointer{URL: "https://10.0.1/config/worker"}, "it is no URL"},
		{provision.Pointer{URL: "https://a.example.1./config/worker"}, "it is no URL"},
		{provision.Pointer{URL: pointedTo, CA: []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")}, "of type PRIVATE KEY, and no certificate"},
		{provision.Pointer{URL: pointedTo, CA: append(authority(t), "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n"...)}, "block 2 is of type EC PRIVATE KEY"},
		{provision.Pointer{URL: pointedTo, CA: append(authority(t), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"...)}, "block 2: x509"},
		{provision.Pointer{URL: "https://mcs.example:0/config/worker"}, "it is no URL"},
		{provision.Pointer{URL: "https://mcs.example:65536/config/worker"}, "it is no URL"},
		{provision.Pointer{URL: "https://mcs.example:/config/worker"}, "it is no URL"},
		{provision.Pointer{URL: "https://:22623/config/worker"}, "it is no URL"},
		{provision.Pointer{URL: "https://mcs..example/config/worker"}, "it is no URL"},
		{provision.Pointer{URL: "https://-mcs.example/config/worker"}, "it is no URL"},
		{provision.Pointer{URL: "https://[mcs]/config/worker"}, "it is no URL"},
		{provision.Pointer{URL: pointedTo + "?id=1"}, "it is no URL"},
		{provision.Pointer{URL: pointedTo + "?"}, "it is no URL"},
		{provision.Pointer{URL: pointedTo + "#a"}, "it is no URL"},
		{provision.Pointer{URL: "https://mcs.example/config/work%65r"}, "it is no URL"},
		{provision.Pointer{URL: "https://mcs.example/config/Worker"}, "/config/ROLE"},
	} {
		if raw, err := c.at.Config("3.1.0"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %s, %v", c.at, raw, err)
		}
	}
}

// authority returns a certificate of an authority in PEM.
func authority(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
