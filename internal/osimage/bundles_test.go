package osimage_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	imgspec "github.com/opencontainers/image-spec/specs-go/v1"

	"machine-pivot/internal/fault"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/registry"
)

// bundled is a host with a registry that has an image with a Sigstore bundle.
type bundled struct {
	*host
	key    bundleSigner
	name   string // of the repository
	digest string
}

func newBundled(t *testing.T, identity func(name string) string) bundled {
	t.Helper()
	b := bundled{host: newHost(t, registry.Options{Referrers: true}), key: newBundleSigner(t, "").(bundleSigner)}
	b.name = b.registry.Host() + "/test/os"
	_, b.digest = b.push("x", plain(t, oscontainer.WithLabel("version", "x")))
	c := claim{identity: identity(b.name), digest: b.digest}
	b.key.store(t, b.registry, b.digest, c, b.key.sign(t, c))
	return b
}

// with returns the requirement of the key's signature with further members.
func (b bundled) with(more string) string {
	return strings.TrimSuffix(b.key.requirement(b.t), "}") + more + "}"
}

func itself(name string) string { return name }

// TestBundleIdentities: a bundle is accepted only for a name that the policy accepts, as a signature in the older
// format, and never without a name.
func TestBundleIdentities(t *testing.T) {
	for what, c := range map[string]struct {
		signed   func(name string) string
		identity func(name string) string // in the policy; "": the default
		byTag    string                   // in the error; "" if it is accepted
		byDigest string
	}{
		"a repository, by default":        {itself, none, "which matchRepoDigestOrExact does not accept", "which matchRepoDigestOrExact does not accept"},
		"a tag, by default":               {func(n string) string { return n + ":x" }, none, "", ""},
		"another tag, by default":         {func(n string) string { return n + ":y" }, none, "does not accept", ""},
		"a repository":                    {itself, typed("matchRepository"), "", ""},
		"another repository":              {func(n string) string { return n + "2" }, typed("matchRepository"), "does not accept", "does not accept"},
		"no name":                         {none, typed("matchRepository"), "does not say which image it signs; sign with cosign sign -a docker-reference=", "does not say"},
		"no name at all":                  {func(string) string { return "A B" }, typed("matchRepository"), `the signed name "A B"`, `the signed name "A B"`},
		"exactly":                         {func(n string) string { return n + ":x" }, typed("matchExact"), "", "does not accept"},
		"exactly, without a tag":          {itself, typed("matchExact"), "does not accept", "does not accept"},
		"the policy's reference":          {func(string) string { return "quay.example/a:1" }, func(string) string { return `{"type":"exactReference","dockerReference":"quay.example/a:1"}` }, "", ""},
		"not the policy's reference":      {func(string) string { return "quay.example/a:2" }, func(string) string { return `{"type":"exactReference","dockerReference":"quay.example/a:1"}` }, "does not accept", "does not accept"},
		"the policy's repository":         {func(string) string { return "quay.example/a" }, func(string) string { return `{"type":"exactRepository","dockerRepository":"quay.example/a"}` }, "", ""},
		"not the policy's repository":     {itself, func(string) string { return `{"type":"exactRepository","dockerRepository":"quay.example/a"}` }, "does not accept", "does not accept"},
		"remapped":                        {func(string) string { return "quay.example/test/os:x" }, remap("quay.example"), "", ""},
		"remapped to another":             {func(string) string { return "quay.example/test/os:x" }, remap("other.example"), "does not accept", "does not accept"},
		"not remapped, though it must be": {func(n string) string { return n + ":x" }, remap("quay.example"), "does not accept", "does not accept"},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBundled(t, c.signed)
			more := ""
			if identity := c.identity(b.name); identity != "" {
				more = `,"signedIdentity":` + identity
			}
			b.policy(b.name, b.with(more))
			for reference, want := range map[string]string{b.name + ":x": c.byTag, b.name + "@" + b.digest: c.byDigest} {
				_, err := b.lookUp(t.Context(), parse(t, reference))
				if want != "" {
					refused(t, err, fault.Refused, want, "signed as the rule wants")
				} else if err != nil {
					t.Errorf("%s: %v", reference, err)
				}
			}
		})
	}
}

// TestBundleOfTheNameAskedFor: a signature of a tag is accepted for the digest that was found by that tag, also from a
// mirror that serves one layer.
func TestBundleOfTheNameAskedFor(t *testing.T) {
	b := newBundled(t, func(name string) string { return name + ":x" })
	b.policy(b.name, b.with(`,"signedIdentity":{"type":"matchExact"}`))
	asked, pinned := parse(t, b.name+":x"), parse(t, b.name+"@"+b.digest)
	opened, err := b.puller.OpenPinned(t.Context(), asked, b.digest)
	if err != nil || opened.Reference != pinned {
		t.Fatalf("%v, %v", opened, err)
	}
	if err := opened.Close(); err != nil {
		t.Error(err)
	}
	_, err = b.puller.OpenPinned(t.Context(), parse(t, b.name+":y"), b.digest)
	refused(t, err, fault.Refused, "does not accept for "+b.name+":y", "")
}

func none(string) string { return "" }

func typed(kind string) func(string) string {
	return func(string) string { return `{"type":"` + kind + `"}` }
}

func remap(to string) func(string) string {
	return func(name string) string {
		host, _, _ := strings.Cut(name, "/")
		return `{"type":"remapIdentity","prefix":"` + host + `","signedPrefix":"` + to + `"}`
	}
}

// TestBundleRules: what a rule wants beyond a key's signature is not taken for given, and each requirement counts.
func TestBundleRules(t *testing.T) {
	b := newBundled(t, itself)
	const anyName = `,"signedIdentity":{"type":"matchRepository"}`
	b.write("/keys/cosign.pub", string(b.key.public(t)))
	theirs := newBundleSigner(t, "").(bundleSigner)
	for requirements, want := range map[string]string{
		b.with(anyName): "",
		b.with(anyName) + `,{"type":"insecureAcceptAnything"}`:                                                                        "",
		`{"type":"insecureAcceptAnything"},` + b.with(anyName):                                                                        "",
		b.with(anyName) + `,{"type":"reject"}`:                                                                                        "Running image",
		b.with(anyName) + "," + strings.TrimSuffix(theirs.requirement(t), "}") + anyName + "}":                                        "none of the keys",
		`{"type":"sigstoreSigned","keyPath":"/keys/cosign.pub"` + anyName + "}":                                                       "",
		`{"type":"sigstoreSigned","keyPaths":["/keys/cosign.pub"]` + anyName + "}":                                                    "",
		b.with(anyName + `,"rekorPublicKeyData":"` + b.key.publicData(t) + `"`):                                                       "wants an entry in Rekor",
		`{"type":"sigstoreSigned","pki":{"caRootsData":"` + b.key.publicData(t) + `","subjectEmail":"a@example.com"}` + anyName + "}": "about certificates",
		newGPGSigner(t, filepath.Join(t.TempDir(), "none")).requirement(t) + "," + b.with(anyName):                                    "no signature exists",
	} {
		b.policy(b.name, requirements)
		_, err := b.lookUp(t.Context(), parse(t, b.name+":x"))
		if want == "" && err != nil {
			t.Errorf("%s: %v", requirements, err)
		} else if want != "" {
			refused(t, err, fault.Refused, want, "")
		}
	}
}

// TestBundleUnavailable: a registry that cannot give the bundles now is no registry without bundles.
func TestBundleUnavailable(t *testing.T) {
	b := newBundled(t, itself)
	b.policy(b.name, b.with(`,"signedIdentity":{"type":"matchRepository"}`))
	b.registry.Spoil(registry.Rule{On: "/referrers/", Fault: registry.Status(http.StatusServiceUnavailable)})
	_, err := b.lookUp(t.Context(), parse(t, b.name+":x"))
	refused(t, err, fault.Unavailable, "cannot fetch its signatures", "")
	b.registry.Spoil()
	if _, err := b.lookUp(t.Context(), parse(t, b.name+":x")); err != nil {
		t.Error(err)
	}
}

// refer pushes something that refers to the image, and returns its digest.
func (b bundled) refer(n int, artifact, layer string, text []byte) string {
	b.t.Helper()
	return pushTo(b.t, b.registry, fmt.Sprint("refers-", n), referring(b.t, b.digest, artifact, layer, text))
}

// TestBundleBesideOthers: an image's signature is found beside other referrers that cannot be read or are none of its
// signatures. Without an accepted signature they are named, and the image is refused.
func TestBundleBesideOthers(t *testing.T) {
	const artifact = "application/vnd.oci.empty.v1+json"
	attestation, err := json.Marshal(map[string]any{"mediaType": bundleType, "dsseEnvelope": map[string]any{"payload": make([]byte, 300<<10)}})
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		add      func(b bundled)
		pages    bool   // the list has one manifest on each page
		want     string // in the error if no signature is accepted
		accepted bool   // if one is
	}{
		"a large attestation": {add: func(b bundled) { b.refer(0, artifact, bundleType, attestation) }, want: "which refers to the image: it has 4", accepted: true},
		"no bundle":           {add: func(b bundled) { b.refer(0, artifact, bundleType, []byte("x")) }, want: "bundle ", accepted: true},
		"a missing manifest": {add: func(b bundled) {
			b.registry.Spoil(registry.Rule{On: "/manifests/" + b.refer(0, artifact, bundleType, []byte("x")), Fault: registry.Status(http.StatusNotFound)})
		}, want: "which refers to the image: fetching the blob: 404", accepted: true},
		"no manifest": {add: func(b bundled) {
			b.registry.Spoil(registry.Rule{On: "/manifests/" + b.refer(0, artifact, bundleType, []byte("x")), Fault: registry.WebPage()})
		}, want: "the registry answers with something else", accepted: true},
		"many of other types": {add: func(b bundled) {
			for n := range 66 {
				b.refer(n, "application/vnd.example.sbom", "application/spdx+json", []byte{byte(n)})
			}
		}, want: "none of the keys", accepted: true},
		"many of the type": {add: func(b bundled) {
			for n := range 65 {
				b.refer(n, artifact, "application/spdx+json", []byte{byte(n)})
			}
		}, want: "more than 64 manifests may have a signature"},
		"several pages": {add: func(b bundled) {
			for n := range 5 {
				b.refer(n, artifact, bundleType, []byte{byte(n)})
			}
		}, pages: true, want: "bundle 6 of 6", accepted: true},
		"too many pages": {add: func(b bundled) {
			for n := range 40 {
				b.refer(n, "application/vnd.example.sbom", "application/spdx+json", []byte{byte(n)})
			}
		}, pages: true, want: "it has more than 32 pages"},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBundled(t, itself)
			b.policy(b.name, b.with(`,"signedIdentity":{"type":"matchRepository"}`))
			c.add(b)
			if c.pages {
				b.registry.Spoil(registry.Rule{On: "/referrers/", Fault: paged(t)})
			}
			if c.accepted {
				if _, err := b.lookUp(t.Context(), parse(t, b.name+":x")); err != nil {
					t.Error(err)
				}
			}
			theirs := newBundleSigner(t, "").(bundleSigner)
			b.policy(b.name, strings.TrimSuffix(theirs.requirement(t), "}")+`,"signedIdentity":{"type":"matchRepository"}}`)
			_, err := b.lookUp(t.Context(), parse(t, b.name+":x"))
			refused(t, err, fault.Refused, "the signature policy rejects it by ", "signed as the rule wants")
			refused(t, err, fault.Refused, c.want, "")
		})
	}
}

// TestBundlePageElsewhere: the next page of the list is not read from another server, which would get the credentials.
func TestBundlePageElsewhere(t *testing.T) {
	b := newBundled(t, itself)
	b.policy(b.name, `{"type":"sigstoreSigned","keyData":"`+newBundleSigner(t, "").(bundleSigner).publicData(t)+`"}`)
	other := startRegistry(t, registry.Options{})
	for _, link := range []string{"https://" + other.Host() + "/v2/x", "http://" + b.registry.Host() + "/v2/x"} {
		b.registry.Spoil(registry.Rule{On: "/referrers/", Fault: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				w.Header().Set("Link", "<"+link+`>; rel="next"`)
				next.ServeHTTP(w, req)
			})
		}})
		_, err := b.lookUp(t.Context(), parse(t, b.name+":x"))
		refused(t, err, fault.Refused, "the registry names "+strings.TrimSuffix(link, "/v2/x")+" for its next page", "")
	}
	if n := len(other.RequestLog()); n != 0 {
		t.Errorf("the other server was asked %d times", n)
	}
}

// paged gives each manifest of a list of referrers on a page of its own.
func paged(t *testing.T) registry.Fault {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			all := httptest.NewRecorder()
			next.ServeHTTP(all, req)
			var index imgspec.Index
			if err := json.Unmarshal(all.Body.Bytes(), &index); err != nil {
				t.Errorf("%s: %v", all.Body, err)
				return
			}
			slices.SortFunc(index.Manifests, func(a, b imgspec.Descriptor) int { return strings.Compare(string(a.Digest), string(b.Digest)) }) // the registry's order differs each time
			page, _ := strconv.Atoi(req.URL.Query().Get("last"))                                                                               // 0 is the first
			if page+1 < len(index.Manifests) {
				w.Header().Set("Link", fmt.Sprintf(`<%s?last=%d&n=1>; rel="next"`, req.URL.Path, page+1))
			}
			index.Manifests = index.Manifests[page : page+1]
			w.Header().Set("Content-Type", imgspec.MediaTypeImageIndex)
			_ = json.NewEncoder(w).Encode(index)
		})
	}
}
