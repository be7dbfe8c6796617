package source

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
)

const (
	cosignDigest = "sha256:f86c793613950bde67a503819a5458cf6cbe743cdc013ad28f3d5eeab87d1d27"
	inToto       = "application/vnd.in-toto+json"
	mediaType    = "application/vnd.dev.sigstore.bundle.v0.3+json"
)

// TestCosign: what cosign 3.1.1 of Debian has made with "cosign sign -a docker-reference=quay.example/test/os".
func TestCosign(t *testing.T) {
	key := parsedKey(t, read(t, "testdata/cosign.pub"))
	data := read(t, "testdata/cosign-3.1.1.json")
	claim, err := verifyBundle(data, []crypto.PublicKey{key})
	if err != nil || claim.Digest != cosignDigest || !slices.Equal(claim.Names, []string{"quay.example/test/os"}) {
		t.Errorf("%+v, %v", claim, err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	if _, err := verifyBundle(data, []crypto.PublicKey{other.Public()}); err == nil || !strings.Contains(err.Error(), "none of the keys") {
		t.Errorf("by another key: %v", err)
	}
	if _, err := verifyBundle(data, []crypto.PublicKey{other.Public(), key}); err != nil {
		t.Errorf("by one of two keys: %v", err)
	}
	// Whatever bit of the envelope's content changes, it is not accepted with another meaning.
	for i := range data {
		for bit := range 8 {
			changed := slices.Clone(data)
			changed[i] ^= 1 << bit
			if got, err := verifyBundle(changed, []crypto.PublicKey{key}); err == nil && (got.Digest != claim.Digest || !slices.Equal(got.Names, claim.Names)) {
				t.Fatalf("with bit %d of byte %d changed: %+v", bit, i, got)
			}
		}
	}
}

// signedBundle makes a bundle with a statement, signed by a key.
func signedBundle(t *testing.T, key crypto.Signer, statement string) map[string]any {
	t.Helper()
	message := fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(inToto), inToto, len(statement), statement)
	hash := map[int]crypto.Hash{256: crypto.SHA256, 384: crypto.SHA384, 521: crypto.SHA512}[hashBits(key)]
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

// hashBits returns the size of the hash that a key signs; 0: it signs the message.
func hashBits(key crypto.Signer) int {
	switch key := key.(type) {
	case *ecdsa.PrivateKey:
		return key.Params().BitSize
	case *rsa.PrivateKey:
		return 256
	}
	return 0
}

func statementOf(subjects string) string {
	return `{"_type":"https://in-toto.io/Statement/v1","subject":[` + subjects + `],"predicateType":"https://sigstore.dev/cosign/sign/v1","predicate":{}}`
}

const oneSubject = `{"digest":{"sha256":"f86c793613950bde67a503819a5458cf6cbe743cdc013ad28f3d5eeab87d1d27"}}`

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
		public, err := parseKey(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
		if name == "P-224" {
			if err == nil || !strings.Contains(err.Error(), "P-224 is not supported") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		must(t, err)
		text, err := json.Marshal(signedBundle(t, key, statementOf(oneSubject)))
		must(t, err)
		if claim, err := verifyBundle(text, []crypto.PublicKey{public}); err != nil || claim.Digest != cosignDigest || len(claim.Names) != 0 {
			t.Errorf("%s: %+v, %v", name, claim, err)
		}
	}
	for _, text := range []string{"", "x", string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY"})), string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE"}))} {
		if _, err := parseKey([]byte(text)); err == nil {
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
		{statement: statementOf(oneSubject)},
		{statement: statementOf(`{"name":"quay.example/a:1",` + oneSubject[1:]), names: "quay.example/a:1"},
		{statement: statementOf(`{"name":"quay.example/a:1","annotations":{"docker-reference":"quay.example/b","x":1},` + oneSubject[1:]), names: "quay.example/a:1 quay.example/b"},
		{statement: statementOf(`{"annotations":{"docker-reference":1},` + oneSubject[1:]), wrong: "not the name of an image"},
		{statement: statementOf(`{"annotations":{"docker-reference":""},` + oneSubject[1:]), wrong: "not the name of an image"},
		{statement: statementOf(oneSubject + "," + oneSubject), wrong: "2 subjects"},
		{statement: statementOf(""), wrong: "0 subjects"},
		{statement: statementOf(`{"digest":{"sha512":"00"}}`), wrong: "no SHA-256"},
		{statement: statementOf(strings.ToUpper(oneSubject)), wrong: "no SHA-256"},
		{statement: strings.Replace(statementOf(oneSubject), "cosign/sign/v1", "cosign/attest/v1", 1), wrong: "no signature but an attestation"},
		{statement: strings.Replace(statementOf(oneSubject), "Statement/v1", "Statement/v0.1", 1), wrong: "of the type"},
		{statement: strings.Replace(statementOf(oneSubject), `"subject"`, `"subject":[],"Subject"`, 1), wrong: `"Subject" occurs twice`},
		{statement: strings.Replace(statementOf(oneSubject), `"subject"`, `"subject":[],"ſubject"`, 1), wrong: `occurs twice`},
		{statement: statementOf(oneSubject) + "{}", wrong: "something follows"},
		{statement: "", wrong: "cannot be read"},
		{statement: `{"a":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "}", wrong: "nested"},
	} {
		text, err := json.Marshal(signedBundle(t, key, c.statement))
		must(t, err)
		claim, err := verifyBundle(text, []crypto.PublicKey{key.Public()})
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s: error %v, want %q", c.statement, err, c.wrong)
			}
		} else if err != nil || claim.Digest != cosignDigest || strings.Join(claim.Names, " ") != c.names {
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
		{func(_, e map[string]any) { e["payload"] = []byte(statementOf(oneSubject) + " ") }, "none of the keys"},
		{func(b, _ map[string]any) { b["DSSEEnvelope"] = map[string]any{} }, "occurs twice"},
		{func(b, _ map[string]any) { b["x"] = strings.Repeat("x", maxBundle) }, "more than 262144"},
	} {
		b := signedBundle(t, key, statementOf(oneSubject))
		c.change(b, b["dsseEnvelope"].(map[string]any))
		text, err := json.Marshal(b)
		must(t, err)
		if _, err := verifyBundle(text, []crypto.PublicKey{key.Public()}); err == nil || !strings.Contains(err.Error(), c.wrong) {
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
	key, err := parseKey(text)
	if err != nil {
		f.Fatal(err)
	}
	payload := base64.StdEncoding.EncodeToString([]byte(statementOf(oneSubject)))
	f.Add(data)
	f.Add([]byte(`{"mediaType":"` + mediaType + `","dsseEnvelope":{"payloadType":"` + inToto + `","payload":"` + payload + `","signatures":[{"sig":"MEQC"}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if claim, err := verifyBundle(data, []crypto.PublicKey{key}); err == nil && claim.Digest != cosignDigest {
			t.Errorf("accepted: %+v", claim)
		}
	})
}

// FuzzStatement: no statement panics, whoever signed it; what is accepted has a digest, and names that are not empty.
func FuzzStatement(f *testing.F) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	f.Add(statementOf(oneSubject))
	f.Add(statementOf(`{"name":"quay.example/a:1","annotations":{"docker-reference":"quay.example/b","x":1},` + oneSubject[1:]))
	f.Add(statementOf(`{"Name":"a","name":"b","digest":{"sha256":"` + strings.Repeat("0", 64) + `","sha512":""}}`))
	f.Add(strings.Repeat("[", 40))
	f.Fuzz(func(t *testing.T, text string) {
		data, err := json.Marshal(signedBundle(t, key, text))
		must(t, err)
		claim, err := verifyBundle(data, []crypto.PublicKey{key.Public()})
		if err != nil {
			return
		}
		if hex, found := strings.CutPrefix(claim.Digest, "sha256:"); !found || len(hex) != 64 || strings.Trim(hex, "0123456789abcdef") != "" || slices.Contains(claim.Names, "") {
			t.Errorf("accepted: %+v of %q", claim, text)
		}
	})
}

func parsedKey(t *testing.T, text []byte) crypto.PublicKey {
	t.Helper()
	key, err := parseKey(text)
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
