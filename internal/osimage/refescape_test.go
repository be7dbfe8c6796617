package osimage

import (
	"strconv"
	"strings"
	"testing"

	"machine-pivot/internal/osimage/imageref"
)

// TestEscapeRef has examples with the results of ostree-ext.
func TestEscapeRef(t *testing.T) {
	for in, want := range map[string]string{
		"docker://quay.io/a/b@sha256:abcd":            "docker_3A__2F__2F_quay_2E_io/a/b_40_sha256_3A_abcd",
		"sha256:0123":                                 "sha256_3A_0123",
		"oci:/var/tmp/x":                              "oci_3A__2F_var/tmp/x",
		"containers-storage:localhost/foo_bar:latest": "containers-storage_3A_localhost/foo__bar_3A_latest",
		"a/":   "a_2F_",
		"é/b":  "_E9__2F_b",
		"a-/b": "a-_2F_b",
	} {
		if got := escapeRef(in); got != want {
			t.Errorf("escapeRef(%q) = %q, want %q", in, got, want)
		}
	}
	for in, want := range map[string]string{
		"ostree-image-signed:docker://quay.io/a/b:1": "ostree/container/image/docker_3A__2F__2F_quay_2E_io/a/b_3A_1",
		"oci:/var/tmp/x": "ostree/container/image/oci_3A__2F_var/tmp/x",
	} {
		ref, err := imageref.Parse(in)
		if got := imageRef(ref); err != nil || got != want {
			t.Errorf("imageRef(%s) = %q, want %q; %v", in, got, want, err)
		}
	}
}

// FuzzEscapeRef: an escaped text is a valid ref, and no other text gives the same ref.
func FuzzEscapeRef(f *testing.F) {
	for _, seed := range []string{"docker://quay.io/a/b@sha256:abcd", "a/", "é/b", "a-/b", "_2F_", "__", "../x", "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ref := escapeRef(text)
		if strings.Trim(ref, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_/") != "" ||
			strings.HasPrefix(ref, "/") || strings.HasSuffix(ref, "/") || strings.Contains(ref, "//") {
			t.Errorf("%q: %q is no ref", text, ref)
		}
		if got, want := unescape(t, ref), string([]rune(text)); got != want {
			t.Errorf("%q: %q stands for %q", text, ref, got)
		}
	})
}

// unescape is the inverse of escapeRef.
func unescape(t *testing.T, ref string) string {
	t.Helper()
	var b strings.Builder
	for {
		plain, rest, ok := strings.Cut(ref, "_")
		b.WriteString(plain)
		if !ok {
			return b.String()
		}
		code, rest, ok := strings.Cut(rest, "_")
		if !ok {
			t.Fatalf("%q does not end", ref)
		}
		if ref = rest; code == "" {
			b.WriteByte('_')
			continue
		}
		r, err := strconv.ParseInt(code, 16, 32)
		if err != nil {
			t.Fatal(err)
		}
		b.WriteRune(rune(r))
	}
}
