package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	yaml "go.yaml.in/yaml/v3"

	"machine-pivot/internal/author/provision"
)

// TestPointerCommand: the Secret has the digest of the token of a new pointer, and only the pointer has the token.
func TestPointerCommand(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	f := pointerFlags{url: "https://mcs.example:22623/config/worker", version: "3.1.0", uses: "2", valid: time.Hour, namespace: "ns",
		newToken: filepath.Join(t.TempDir(), "token.yaml")}
	var out bytes.Buffer
	if err := f.run(t.Context(), strings.NewReader(""), &out, now); err != nil {
		t.Fatal(err)
	}
	sent := regexp.MustCompile(`"Bearer ([A-Za-z0-9_-]{43})"`).FindStringSubmatch(out.String())
	text, err := os.ReadFile(f.newToken)
	if err != nil || sent == nil || strings.Contains(string(text), sent[1]) {
		t.Fatalf("%v: %s\n%s", err, out.String(), text)
	}
	var secret struct {
		Type       string
		Metadata   struct{ Name, Namespace string }
		StringData map[string]string `yaml:"stringData"`
	}
	if err := yaml.Unmarshal(text, &secret); err != nil {
		t.Fatal(err)
	}
	data := map[string][]byte{}
	for key, value := range secret.StringData {
		data[key] = []byte(value)
	}
	got, err := provision.ParseToken(data)
	if err != nil || provision.FindToken([]provision.Token{got}, sent[1], "worker") != 0 || got.Uses != 2 || !got.Expires.Equal(now.Add(time.Hour)) ||
		secret.Type != provision.TokenSecretType || secret.Metadata.Namespace != "ns" || !strings.HasPrefix(secret.Metadata.Name, "worker-") {
		t.Errorf("%+v, %v: %s", got, err, text)
	}
	for want, change := range map[string]func(f *pointerFlags){
		"exclude one another":    func(f *pointerFlags) { f.tokenFile = "x" },
		"--valid must be":        func(f *pointerFlags) { f.valid = 0 },
		"uses: ":                 func(f *pointerFlags) { f.uses = "0" },
		"need https":             func(f *pointerFlags) { f.url = "http://mcs.example/config/worker" },
		"from version 3.1.0 on":  func(f *pointerFlags) { f.version = "2.2.0" },
		"does not have one word": func(f *pointerFlags) { f.newToken, f.tokenFile = "", "-" },
	} {
		wrong := f
		change(&wrong)
		out.Reset()
		if err := wrong.run(t.Context(), strings.NewReader("two words"), &out, now); err == nil || !strings.Contains(err.Error(), want) || out.Len() > 0 {
			t.Errorf("%s: %v %s", want, err, out.String())
		}
	}
}
