package imageref

import (
	"encoding/json"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
)

const (
	digestA = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	digestB = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

func mustParse(t *testing.T, s string) Reference {
	t.Helper()
	ref, err := Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func TestParse(t *testing.T) {
	for in, want := range map[string]string{
		"quay.io/a/b":                            "quay.io/a/b:latest",
		"quay.io/a/b:4.12":                       "quay.io/a/b:4.12",
		"quay.io/a/b@" + digestA:                 "quay.io/a/b@" + digestA,
		"quay.io/a/b:4.12@" + digestA:            "quay.io/a/b@" + digestA,
		"docker://quay.io/a/b:x":                 "quay.io/a/b:x",
		"localhost/x":                            "localhost/x:latest",
		"registry:5000/x":                        "registry:5000/x:latest",
		"10.0.2.2:5000/os:1":                     "10.0.2.2:5000/os:1",
		"docker.io/fedora":                       "docker.io/library/fedora:latest",
		"oci:/dir":                               "oci:/dir",
		"oci:/dir:name:1":                        "oci:/dir:name:1",
		"oci:/dir@" + digestA:                    "oci:/dir@" + digestA,
		"oci:relative/dir:x@" + digestA:          "oci:relative/dir:x@" + digestA,
		"oci-archive:/f.tar:quay.io/a/b:1":       "oci-archive:/f.tar:quay.io/a/b:1",
		"dir:/d:with:colons":                     "dir:/d:with:colons",
		"docker-archive:/f.tar":                  "docker-archive:/f.tar",
		"ostree-unverified-registry:quay.io/a/b": "quay.io/a/b:latest",
		"ostree-unverified-image:docker://quay.io/a/b@" + digestA: "quay.io/a/b@" + digestA,
		"ostree-unverified-image:registry:quay.io/a/b:1":          "quay.io/a/b:1",
		"ostree-unverified-image:oci:/dir":                        "oci:/dir",
		"ostree-image-signed:docker://quay.io/a/b:1":              "ostree-image-signed:docker://quay.io/a/b:1",
		"ostree-image-signed:registry:quay.io/a/b:1":              "ostree-image-signed:docker://quay.io/a/b:1",
		"ostree-remote-image:fedora:docker://quay.io/a/b:1":       "ostree-remote-image:fedora:docker://quay.io/a/b:1",
		"ostree-remote-registry:fedora:quay.io/a/b:1":             "ostree-remote-image:fedora:docker://quay.io/a/b:1",
	} {
		ref := mustParse(t, in)
		if got := ref.String(); got != want {
			t.Errorf("Parse(%q) = %q, want %q", in, got, want)
		}
		if again := mustParse(t, ref.String()); again != ref {
			t.Errorf("%q is not canonical: %#v, %#v", ref, ref, again)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for in, want := range map[string]string{
		"":                              "empty",
		"quay.io/a/b\n":                 "white space",
		"fedora":                        "no registry host",
		"a/b:1":                         "no registry host",
		"quay.io/A/b":                   "lowercase",
		"[::1]:5000/a/b:1":              "takes no IPv6 address",
		"docker://[fd00::1]/a/b":        "takes no IPv6 address",
		"quay.io/a/b@":                  "invalid reference format",
		"quay.io/a/b@sha256:12":         "the digest sha256:12 is not sha256:<64 hex digits>",
		"x@sha256:12":                   "the name has no registry host (HOST[:PORT]/PATH); the digest sha256:12 is not",
		digestA:                         "a digest alone says neither where the image is",
		"@" + digestA:                   "a digest alone says neither where the image is",
		"sha256:12":                     "the digest sha256:12 is not",
		"docker:quay.io/a/b":            "must be followed by //",
		"docker://":                     "no registry host",
		"oci:":                          "not followed by a path",
		"oci:/d:-x":                     "not the name of an image",
		"dir:":                          "not followed by a path",
		"docker-archive:/f:x":           "no colon",
		"containers-storage:quay.io/a":  `transport "containers-storage" is not supported`,
		"docker-daemon:quay.io/a/b:1":   "is not supported",
		"ostree-unverified-image:x":     "not TRANSPORT:NAME",
		"ostree-unverified-image:x:y":   `transport "x" is not supported`,
		"ostree-unverified-registry:":   "no registry host",
		"ostree-remote-image:r":         "not TRANSPORT:NAME",
		"ostree-remote-image::oci:/dir": "not followed by the name of an ostree remote",
		"quay.io/a/b@sha512:" + strings.Repeat("a", 128): "not sha256",
	} {
		ref, err := Parse(in)
		if err == nil {
			t.Errorf("Parse(%q) = %q, want an error", in, ref)
			continue
		}
		if !strings.Contains(err.Error(), want) || fault.KindOf(err) != fault.BadInput {
			t.Errorf("Parse(%q): %v, want %q", in, err, want)
		}
	}
}

func TestSameImage(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"quay.io/a/b@" + digestA, "docker://quay.io/a/b:tag@" + digestA, true},
		{"quay.io/a/b@" + digestA, "ostree-unverified-registry:quay.io/a/b@" + digestA, true},
		{"quay.io/a/b@" + digestA, "ostree-image-signed:docker://quay.io/a/b@" + digestA, true},
		{"quay.io/a/b@" + digestA, "quay.io/a/b@" + digestB, false},
		{"quay.io/a/b@" + digestA, "quay.io/a/c@" + digestA, false},
		{"quay.io/a/b@" + digestA, "quay.io/a/b", false},
		{"quay.io/a/b", "quay.io/a/b:latest", true},
		{"quay.io/a/b:1", "quay.io/a/b:2", false},
		{"oci:/d", "dir:/d", false},
	} {
		a, b := mustParse(t, c.a), mustParse(t, c.b)
		if a.SameImage(b) != c.want || b.SameImage(a) != c.want {
			t.Errorf("SameImage(%s, %s) is not %v", a, b, c.want)
		}
	}
}

func TestPinned(t *testing.T) {
	for in, want := range map[string]string{
		"quay.io/a/b:1":               "quay.io/a/b@" + digestB,
		"quay.io/a/b@" + digestA:      "quay.io/a/b@" + digestB,
		"oci:/d:name":                 "oci:/d:name@" + digestB,
		"ostree-image-signed:dir:/d":  "ostree-image-signed:dir:/d@" + digestB,
		"ostree-remote-image:r:oci:d": "ostree-remote-image:r:oci:d@" + digestB,
	} {
		got := mustParse(t, in).Pinned(digestB)
		if got.String() != want || got.Digest() != digestB || mustParse(t, want) != got {
			t.Errorf("%s pinned is %s, want %s", in, got, want)
		}
	}
}

func TestReferenceAsText(t *testing.T) {
	text, err := json.Marshal(mustParse(t, "docker://quay.io/a/b:1"))
	if err != nil || string(text) != `"quay.io/a/b:1"` {
		t.Fatalf("%s, %v", text, err)
	}
	var ref Reference
	if err := json.Unmarshal(text, &ref); err != nil || ref.String() != "quay.io/a/b:1" {
		t.Fatalf("%s, %v", ref, err)
	}
	if err := json.Unmarshal([]byte(`""`), &ref); err != nil || !ref.IsZero() {
		t.Fatalf("%s, %v", ref, err)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"quay.io/a/b:1@" + digestA, "docker://x:5/y", "oci:/a:b@" + digestA, "dir:x",
		"ostree-remote-image:r:oci-archive:/f:x", "ostree-unverified-registry:q.io/a",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ref, err := Parse(s)
		if err != nil {
			if ref != (Reference{}) || fault.KindOf(err) != fault.BadInput {
				t.Errorf("%q: %#v, %v", s, ref, err)
			}
			return
		}
		again, err := Parse(ref.String())
		if err != nil || again != ref || !again.SameImage(ref) {
			t.Errorf("%q: %q is read back as %q, %v", s, ref, again, err)
		}
		if d := ref.Digest(); d != "" && !isDigest(d) {
			t.Errorf("%q: digest %q", s, d)
		}
		if pinned := ref.Pinned(digestA); mustParse(t, pinned.String()) != pinned {
			t.Errorf("%q: pinned %q is read back differently", s, pinned)
		}
		if ref.Remote() != (ref.Host() != "") {
			t.Errorf("%q: host %q", s, ref.Host())
		}
	})
}
