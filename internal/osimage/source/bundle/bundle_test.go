package bundle_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/osimage/source/bundle"
)

const (
	digest    = "sha256:f86c793613950bde67a503819a5458cf6cbe743cdc013ad28f3d5eeab87d1d27"
	inToto    = "application/vnd.in-toto+json"
	mediaType = "application/vnd.dev.sigstore.bundle.v0.3+json"
)

// TestCosign: what cosign 3.1.1 of Debian has made with "cosign sign -a docker-reference=quay.example/test/os".
func TestCosign(t *testing.T) {
	key := parsed(t, read(t, "testdata/cosign.pub"))
	data := read(t, "testdata/cosign-3.1.1.json")
	claim, err := bundle.Verify(data, []crypto.PublicKey{key})
	if err != nil || claim.Digest != digest || !slices.Equal(claim.Names, []string{"quay.example/test/os"}) {
		t.Errorf("%+v, %v", claim, err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	if _, err := bundle.Verify(data, []crypto.PublicKey{other.Public()}); err == nil || !strings.Contains(err.Error(), "none of the keys") {
		t.Errorf("by another key: %v", err)
	}
	if _, err := bundle.Verify(data, []crypto.PublicKey{other.Public(), key}); err != nil {
		t.Errorf("by one of two keys: %v", err)
	}
	// Whatever bit of the envelope's content changes, it is not accepted with another meaning.
	for i := range data {
		for bit := range 8 {
			changed := slices.Clone(data)
			changed[i] ^= 1 << bit
			if got, err := bundle.Verify(changed, []crypto.PublicKey{key}); err == nil && (got.Digest != claim.Digest || !slices.Equal(got.Names, claim.Names)) {
				t.Fatalf("with bit %d of byte %d changed: %+v", bit, i, got)
			}
		}
	}
}

// made makes a bundle with a statement, signed by a key.
func made(t *testing.T, key crypto.Signer, statement string) map[string]any {
	t.Helper()
	message := fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(inToto), inToto, len(statement), statement)
	hash := map[int]crypto.Hash{256: crypto.SHA256, 384: crypto.SHA384, 521: crypto.SHA512}[bits(key)]
	if hash != 0 {
		h := hash.New()
		h.Write(message)
		message = h.Sum(nil)
	}
	sig, err := key.Sign(rand.Reader, message, hash)
	must(t, err)
	return map[string]any{
		"mediaType": mediaType, "verificationMaterial": map[string]any{"publicKey": map[string]any{"hint": "x"}},
		"dsseEnvelope": map[string]any{"payload": []byte(statement), "payloadType": inToto, "signatures": []any{map[string]any{"sig": sig, "keyid": ""}}},
	}
}

// bits returns the size of the hash that a key signs; 0: it signs the message.
func bits(key crypto.Signer) int {
	switch key := key.(type) {
	case *ecdsa.PrivateKey:
		return key.Params().BitSize
	case *rsa.PrivateKey:
		return 256
	}
	return 0
}

func statement(subjects string) string {
	return `{"_type":"https://in-toto.io/Statement/v1","subject":[` + subjects + `],"predicateType":"https://sigstore.dev/cosign/sign/v1","predicate":{}}`
}

const subject = `{"digest":{"sha256":"f86c793613950bde67a503819a5458cf6cbe743cdc013ad28f3d5eeab87d1d27"}}`

// TestKeys: keys of each type that sigstore uses.
func TestKeys(t *testing.T) {
	keys := map[string]crypto.Signer{}
	for name, curve := range map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521(), "P-224": elliptic.P224()} {
		key, err := ecdsa.GenerateKey(curve, rand.Reader)
		must(t, err)
		keys[name] = key
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	must(t, err)
	keys["Ed25519"] = ed
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	keys["RSA"] = r
	for name, key := range keys {
		der, err := x509.MarshalPKIXPublicKey(key.Public())
		must(t, err)
		public, err := bundle.ParseKey(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
		if name == "P-224" {
			if err == nil || !strings.Contains(err.Error(), "P-224 is not supported") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		must(t, err)
		text, err := json.Marshal(made(t, key, statement(subject)))
		must(t, err)
		if claim, err := bundle.Verify(text, []crypto.PublicKey{public}); err != nil || claim.Digest != digest || len(claim.Names) != 0 {
			t.Errorf("%s: %+v, %v", name, claim, err)
		}
	}
	for _, text := range []string{"", "x", string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY"})), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE"}))} {
		if _, err := bundle.ParseKey([]byte(text)); err == nil {
			t.Errorf("%q is a key", text)
		}
	}
}

// TestStatements: what may be signed, and what not, although the signature is right.
func TestStatements(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	for _, c := range []struct {
		statement string
		names     string
		wrong     string
	}{
		{statement: statement(subject)},
		{statement: statement(`{"name":"quay.example/a:1",` + subject[1:]), names: "quay.example/a:1"},
		{statement: statement(`{"name":"quay.example/a:1","annotations":{"docker-reference":"quay.example/b","x":1},` + subject[1:]), names: "quay.example/a:1 quay.example/b"},
		{statement: statement(`{"annotations":{"docker-reference":1},` + subject[1:]), wrong: "not the name of an image"},
		{statement: statement(`{"annotations":{"docker-reference":""},` + subject[1:]), wrong: "not the name of an image"},
		{statement: statement(subject + "," + subject), wrong: "2 subjects"},
		{statement: statement(""), wrong: "0 subjects"},
		{statement: statement(`{"digest":{"sha512":"00"}}`), wrong: "no SHA-256"},
		{statement: statement(strings.ToUpper(subject)), wrong: "no SHA-256"},
		{statement: strings.Replace(statement(subject), "cosign/sign/v1", "cosign/attest/v1", 1), wrong: "no signature but an attestation"},
		{statement: strings.Replace(statement(subject), "Statement/v1", "Statement/v0.1", 1), wrong: "of the type"},
		{statement: strings.Replace(statement(subject), `"subject"`, `"subject":[],"Subject"`, 1), wrong: `"Subject" occurs twice`},
		{statement: strings.Replace(statement(subject), `"subject"`, `"subject":[],"ſubject"`, 1), wrong: `occurs twice`},
		{statement: statement(subject) + "{}", wrong: "something follows"},
		{statement: "", wrong: "cannot be read"},
		{statement: `{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "}", wrong: "nested"},
	} {
		text, err := json.Marshal(made(t, key, c.statement))
		must(t, err)
		claim, err := bundle.Verify(text, []crypto.PublicKey{key.Public()})
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s: error %v, want %q", c.statement, err, c.wrong)
			}
		} else if err != nil || claim.Digest != digest || strings.Join(claim.Names, " ") != c.names {
			t.Errorf("%s: %+v, %v", c.statement, claim, err)
		}
	}
}

// TestBundles: bundles that are refused, whoever signed them.
func TestBundles(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	for _, c := range []struct {
		change func(b, envelope map[string]any)
		wrong  string
	}{
		{func(b, _ map[string]any) { b["mediaType"] = "application/json" }, "which is not known"},
		{func(b, _ map[string]any) { delete(b, "dsseEnvelope"); b["messageSignature"] = map[string]any{} }, "no DSSE envelope"},
		{func(_, e map[string]any) { e["payloadType"] = "text/plain" }, "not an in-toto statement"},
		{func(_, e map[string]any) { e["signatures"] = []any{} }, "0 signatures"},
		{func(_, e map[string]any) { s := e["signatures"].([]any); e["signatures"] = append(s, s[0]) }, "2 signatures"},
		{func(_, e map[string]any) { e["signatures"] = []any{map[string]any{"sig": ""}} }, "none of the keys"},
		{func(_, e map[string]any) { e["payload"] = []byte(statement(subject) + " ") }, "none of the keys"},
		{func(b, _ map[string]any) { b["DSSEEnvelope"] = map[string]any{} }, "occurs twice"},
		{func(b, _ map[string]any) { b["x"] = strings.Repeat("x", bundle.MaxSize) }, "more than 262144"},
	} {
		b := made(t, key, statement(subject))
		c.change(b, b["dsseEnvelope"].(map[string]any))
		text, err := json.Marshal(b)
		must(t, err)
		if _, err := bundle.Verify(text, []crypto.PublicKey{key.Public()}); err == nil || !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("error %v, want %q", err, c.wrong)
		}
	}
}

// FuzzVerify: no input panics, and what is accepted was signed.
func FuzzVerify(f *testing.F) {
	data, err := os.ReadFile("testdata/cosign-3.1.1.json")
	if err != nil {
		f.Fatal(err)
	}
	text, err := os.ReadFile("testdata/cosign.pub")
	if err != nil {
		f.Fatal(err)
	}
	key, err := bundle.ParseKey(text)
	if err != nil {
		f.Fatal(err)
	}
	payload := base64.StdEncoding.EncodeToString([]byte(statement(subject)))
	f.Add(data)
	f.Add([]byte(`{"mediaType":"` + mediaType + `","dsseEnvelope":{"payloadType":"` + inToto + `","payload":"` + payload + `","signatures":[{"sig":"MEQC"}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if claim, err := bundle.Verify(data, []crypto.PublicKey{key}); err == nil && claim.Digest != digest {
			t.Errorf("accepted: %+v", claim)
		}
	})
}

// FuzzStatement: no statement panics, whoever signed it; what is accepted has a digest, and names that are not empty.
func FuzzStatement(f *testing.F) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	f.Add(statement(subject))
	f.Add(statement(`{"name":"quay.example/a:1","annotations":{"docker-reference":"quay.example/b","x":1},` + subject[1:]))
	f.Add(statement(`{"Name":"a","name":"b","digest":{"sha256":"` + strings.Repeat("0", 64) + `","sha512":""}}`))
	f.Add(strings.Repeat("[", 40))
	f.Fuzz(func(t *testing.T, text string) {
		data, err := json.Marshal(made(t, key, text))
		must(t, err)
		claim, err := bundle.Verify(data, []crypto.PublicKey{key.Public()})
		if err != nil {
			return
		}
		if hex, found := strings.CutPrefix(claim.Digest, "sha256:"); !found || len(hex) != 64 || strings.Trim(hex, "0123456789abcdef") != "" || slices.Contains(claim.Names, "") {
			t.Errorf("accepted: %+v of %q", claim, text)
		}
	})
}

func parsed(t *testing.T, text []byte) crypto.PublicKey {
	t.Helper()
	key, err := bundle.ParseKey(text)
	must(t, err)
	return key
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	return data
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
