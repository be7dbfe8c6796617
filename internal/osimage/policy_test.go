package osimage_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/registry"
)

func TestPolicy(t *testing.T) {
	h := newHost(t, registry.Options{})
	ref, _ := h.push("x", plain(t))
	name := h.registry.Host()
	accept := `[{"type":"insecureAcceptAnything"}]`
	reject := `[{"type":"reject"}]`
	for _, c := range []struct{ policy, accepted, rejected string }{
		{policy: `{"default":` + reject + `}`, rejected: "default: reject"},
		{policy: `{"default":` + accept + `}`, accepted: "default: insecureAcceptAnything"},
		{policy: `{"default":` + accept + `,"transports":{"docker":{"":` + reject + `}}}`, rejected: `transports.docker[""]: reject`},
		{policy: `{"default":` + reject + `,"transports":{"docker":{"` + name + `":` + accept + `}}}`, accepted: `transports.docker["` + name + `"]: insecureAcceptAnything`},
		{
			policy:   `{"default":` + reject + `,"transports":{"docker":{"` + name + `":` + accept + `,"` + name + `/test/os":` + reject + `}}}`,
			rejected: `transports.docker["` + name + `/test/os"]: reject`,
		},
		{
			policy:   `{"default":` + reject + `,"transports":{"docker":{"` + name + `/test":` + reject + `,"` + name + `/test/os:x":` + accept + `}}}`,
			accepted: `transports.docker["` + name + `/test/os:x"]: insecureAcceptAnything`,
		},
		{policy: `{"default":` + accept + `,"transports":{"oci":{"":` + reject + `}}}`, accepted: "default: insecureAcceptAnything"},
		{policy: `{"default":[{"type":"insecureAcceptAnything"},{"type":"reject"}]}`, rejected: "default: insecureAcceptAnything, reject"},
	} {
		h.write("/etc/containers/policy.json", c.policy)
		image, err := h.lookUp(t.Context(), ref)
		if c.rejected != "" {
			refused(t, err, fault.Refused, "rejects it by "+c.rejected+": Running image", "allow the image, its repository or its registry in "+h.root+"/etc/containers/policy.json")
		} else if err != nil || image.Policy != c.accepted {
			t.Errorf("%s: accepted by %q, want %q; %v", c.policy, image.Policy, c.accepted, err)
		}
	}

	h.write("/etc/containers/policy.json", `{"default":`+accept+`}`)
	_, err := h.lookUp(t.Context(), parse(t, "ostree-image-signed:docker://"+ref.String()))
	refused(t, err, fault.Refused, "by default: insecureAcceptAnything: No signature verification policy", "require a signature")

	_, err = h.lookUp(t.Context(), parse(t, "ostree-remote-image:fedora:docker://"+ref.String()))
	refused(t, err, fault.Refused, `remote "fedora" is not implemented`, "ostree-image-signed")

	for _, bad := range []string{"{", `{"default":[]}`, `{"default":[{"type":"new"}]}`, `{"default":` + accept + `,"typo":1}`, ""} {
		h.write("/etc/containers/policy.json", bad)
		_, err = h.lookUp(t.Context(), ref)
		refused(t, err, fault.Refused, "the signature policy", "policy.json")
	}
	if len(h.notes) != 0 {
		t.Errorf("notes: %q", h.notes)
	}
}

// TestPolicyIsRequired: a policy that cannot be read is an error, not a missing policy.
func TestPolicyIsRequired(t *testing.T) {
	h := newHost(t, registry.Options{})
	ref, _ := h.push("x", plain(t))
	if err := os.Symlink("absent", h.root+"/etc/containers/policy.json"); err != nil {
		t.Fatal(err)
	}
	_, err := h.lookUp(t.Context(), ref)
	refused(t, err, fault.Refused, "cannot read the signature policy", "")
	h.remove("/etc/containers/policy.json")
	image, err := h.lookUp(t.Context(), ref)
	if err != nil || len(h.notes) != 1 || image.Policy != "no policy file: insecureAcceptAnything" {
		t.Errorf("without any policy: %q, %q, %v", image.Policy, h.notes, err)
	}
}

func TestSignatures(t *testing.T) {
	for kind, newSigner := range map[string]func(*testing.T, string) signer{
		"signedBy": newGPGSigner, "sigstoreSigned": newCosignSigner, "sigstoreSigned by bundles": newBundleSigner, "sigstoreSigned by bundles that are listed": newBundleSigner,
	} {
		format, _, _ := strings.Cut(kind, " ")
		h := newHost(t, registry.Options{Referrers: strings.HasSuffix(kind, "listed"), Bearer: strings.HasSuffix(kind, "listed")})
		lookaside := t.TempDir()
		name := h.registry.Host() + "/test/os"
		ours, theirs := newSigner(t, lookaside), newSigner(t, lookaside)
		h.policy(name, ours.requirement(t))
		h.lookFor(name, "file://"+lookaside)
		rule := fmt.Sprintf("transports.docker[%q]: %s", name, format)
		otherDigest := pushTo(t, h.registry, "other", plain(t, oscontainer.WithLabel("version", "other")))
		for what, c := range map[string]struct {
			sign func(good claim) (claim, []byte) // nil: nothing is signed
			want string                           // in the error; "" if the image must be accepted
		}{
			"good":          {sign: func(good claim) (claim, []byte) { return good, ours.sign(t, good) }},
			"unsigned":      {want: "no signature exists"},
			"another's key": {sign: func(good claim) (claim, []byte) { return good, theirs.sign(t, good) }, want: ":"},
			"another image's": {
				sign: func(good claim) (claim, []byte) { good.digest = otherDigest; return good, ours.sign(t, good) },
				want: "digest",
			},
			"of another name": {
				sign: func(good claim) (claim, []byte) {
					good.identity = "registry.example/os:x"
					return good, ours.sign(t, good)
				},
				want: `identity "registry.example/os:x"`,
			},
			"tampered with": {
				sign: func(good claim) (claim, []byte) { b := ours.sign(t, good); b[len(b)-3] ^= 1; return good, b },
				want: ":",
			},
			"cut off": {
				sign: func(good claim) (claim, []byte) { b := ours.sign(t, good); return good, b[:len(b)/2] },
				want: ":",
			},
		} {
			t.Run(kind+" "+what, func(t *testing.T) {
				tag := strings.NewReplacer(" ", "-", "'", "").Replace(what)
				img := plain(t, oscontainer.WithLabel("signed", tag))
				ref, digest := h.push(tag, img)
				if c.sign != nil {
					signed, signature := c.sign(claim{identity: ref.String(), digest: digest})
					ours.store(t, h.registry, digest, signed, signature)
				}
				image, err := h.lookUp(t.Context(), ref)
				if c.want != "" {
					refused(t, err, fault.Refused, "the signature policy rejects it by "+rule+": ", "signed as the rule wants")
					refused(t, err, fault.Refused, c.want, "")
					return
				}
				if err != nil || image.Policy != rule {
					t.Errorf("accepted by %q, want %q; %v", image.Policy, rule, err)
				}
				for _, again := range []string{image.Reference.String(), "ostree-image-signed:docker://" + image.Reference.String()} {
					if _, err := h.lookUp(t.Context(), parse(t, again)); err != nil {
						t.Errorf("%s: %v", again, err)
					}
				}
			})
		}
	}
}

// TestMirroredSignatures: the rule of the requested name applies; the result also names the
// mirror that the image came from.
func TestMirroredSignatures(t *testing.T) {
	for kind, newSigner := range map[string]func(*testing.T, string) signer{
		"signedBy": newGPGSigner, "sigstoreSigned": newCosignSigner, "sigstoreSigned by bundles": newBundleSigner,
	} {
		format, _, _ := strings.Cut(kind, " ")
		t.Run(kind, func(t *testing.T) {
			m := newMirrored(t)
			lookaside := t.TempDir()
			key := newSigner(t, lookaside)
			written := m.registry.Host() + "/test/os"
			m.policy(written, key.requirement(t))
			m.lookFor(m.mirror.Host(), "file://"+lookaside)
			rule := fmt.Sprintf("transports.docker[%q]: %s", written, format)

			_, err := m.lookUp(t.Context(), m.ref(m.tag))
			refused(t, err, fault.Refused, m.names("tried 1 of the 2 places it may come from:\n  MIRROR/test/os: the signature policy rejects it by "+rule+": "), "policy.json")
			if n := m.registry.Requests(); n != 0 {
				t.Errorf("after the policy rejected the mirror's image its registry was asked %d times", n)
			}

			good := claim{identity: written + ":" + m.tag, digest: m.digest}
			key.store(t, m.mirror, m.digest, good, key.sign(t, good))
			image, err := m.lookUp(t.Context(), m.ref(m.tag))
			if err != nil || image.Policy != rule || image.Source.IsZero() {
				t.Errorf("accepted by %q from %q: %v", image.Policy, image.Source, err)
			}

			m.policy(m.mirror.Host(), `{"type":"insecureAcceptAnything"}`) // no rule for the requested name
			_, err = m.lookUp(t.Context(), m.ref(m.tag))
			refused(t, err, fault.Refused, "by default: reject", "")
		})
	}
}

// TestLookasideServer fetches signatures over HTTPS, also from a failing server.
func TestLookasideServer(t *testing.T) {
	h := newHost(t, registry.Options{})
	ref, digest := h.push("x", plain(t))
	lookaside, status := t.TempDir(), 0
	files := http.FileServer(http.Dir(lookaside))
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if status != 0 {
			w.WriteHeader(status)
			return
		}
		files.ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	h.write("/etc/containers/certs.d/"+h.registry.Host()+"/lookaside.crt", string(certificate))
	key := newGPGSigner(t, lookaside)
	h.policy(h.registry.Host(), key.requirement(t))
	h.lookFor(h.registry.Host(), server.URL)

	_, err := h.lookUp(t.Context(), ref)
	refused(t, err, fault.Refused, "no signature exists", "")
	good := claim{identity: ref.String(), digest: digest}
	key.store(t, h.registry, digest, good, key.sign(t, good))
	if _, err := h.lookUp(t.Context(), ref); err != nil {
		t.Error(err)
	}
	status = http.StatusServiceUnavailable
	_, err = h.lookUp(t.Context(), ref)
	refused(t, err, fault.Unavailable, "cannot fetch its signatures: reading signature from "+server.URL, h.root+"/etc/containers/registries.d")
	status = http.StatusForbidden
	_, err = h.lookUp(t.Context(), ref)
	refused(t, err, fault.Refused, "cannot fetch its signatures: ", "registries.d")
	server.Close()
	_, err = h.lookUp(t.Context(), ref)
	refused(t, err, fault.Unavailable, "connection refused", "registries.d")
}

// TestPolicyKeyMissing: a rule without its key file accepts nothing. Keys are looked up below the host's root.
func TestPolicyKeyMissing(t *testing.T) {
	h := newHost(t, registry.Options{})
	lookaside := t.TempDir()
	key := newGPGSigner(t, lookaside)
	ref, digest := h.push("x", plain(t))
	good := claim{identity: ref.String(), digest: digest}
	key.store(t, h.registry, digest, good, key.sign(t, good))
	h.lookFor(h.registry.Host(), "file://"+lookaside)
	h.policy(h.registry.Host(), `{"type":"signedBy","keyType":"GPGKeys","keyPath":"/absent/key.gpg"}`)
	_, err := h.lookUp(t.Context(), ref)
	refused(t, err, fault.Refused, "/absent/key.gpg", "policy.json")
	var requirement struct{ KeyData []byte }
	if err := json.Unmarshal([]byte(key.requirement(t)), &requirement); err != nil {
		t.Fatal(err)
	}
	h.write("/absent/key.gpg", string(requirement.KeyData))
	if _, err := h.lookUp(t.Context(), ref); err != nil {
		t.Error(err)
	}
}
