package osimage_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/source"
	"machine-pivot/test/worlds/registry"
)

const (
	accepting = `{"default":[{"type":"insecureAcceptAnything"}]}`
	rejecting = `{"default":[{"type":"reject"}]}`
)

// configured is a file of the host's configuration and what the host does with it.
type configured struct {
	path, content string
	prepare       func(h *host) // may be nil
	want          string        // in the error; "" if the image is accepted
	linked        string        // in the error if it is an absolute link; "": as otherwise
}

// configuredFiles returns the files of docs/registries.md for a host with a signed image in its registry.
func configuredFiles(h bundled) []configured {
	server := h.registry.Host()
	secret := string(h.registry.PullSecret(server))
	block := fmt.Sprintf("[[registry]]\nlocation = %q\nblocked = true\n", server)
	withoutSecret := func(h *host) { h.remove("/var/lib/kubelet/config.json") }
	byKey := func(h *host) {
		h.policy(server, `{"type":"sigstoreSigned","keyPath":"/keys/cosign.pub","signedIdentity":{"type":"matchRepository"}}`)
	}
	const outside = "an absolute symbolic link points outside of "
	files := []configured{
		{path: "/etc/containers/policy.json", content: rejecting, want: "by default: reject"},
		{path: "/usr/share/containers/policy.json", content: rejecting, want: "by default: reject"},
		{path: "/keys/cosign.pub", content: string(h.key.public(h.t)), prepare: byKey},
		{path: "/etc/containers/registries.conf", content: block, want: "is blocked in registries.conf"},
		{path: "/usr/share/containers/registries.conf", content: block, want: "is blocked in registries.conf"},
		{path: "/etc/containers/registries.conf.d/1.conf", content: block, want: "is blocked in registries.conf", linked: outside},
		{path: "/usr/share/containers/registries.conf.d/1.conf", content: block, want: "is blocked in registries.conf", linked: outside},
		{path: "/etc/containers/registries.d/1.yaml", content: "docker: 1", want: "1.yaml", linked: outside},
		{path: "/etc/mco/proxy.env", content: "HTTPS_PROXY=junk://x\n", want: "cannot use the proxy that HTTPS_PROXY"},
	}
	for _, place := range append(source.PullSecrets(), fmt.Sprintf("/run/containers/%d/auth.json", os.Getuid())) {
		files = append(files, configured{path: place, content: secret, prepare: withoutSecret})
	}
	for _, dir := range []string{"/etc/containers", "/usr/share/containers", "/etc/docker"} {
		trusted := func(h *host) { h.remove("/etc/containers/certs.d/" + server + "/ca.crt") }
		if dir != "/etc/containers" {
			trusted = func(h *host) {
				h.remove("/etc/containers/certs.d/" + server + "/ca.crt")
				h.remove("/etc/containers/certs.d/" + server)
			}
		}
		files = append(files, configured{path: dir + "/certs.d/" + server + "/ca.crt", content: string(h.registry.CA()), prepare: trusted})
	}
	return files
}

// TestLinksBelowRoot: with another root directory each file of the configuration is the one that the host would read,
// also behind an absolute link. The link's target may exist outside, too, or only there. A link that the image library
// would not follow there is refused by its name.
func TestLinksBelowRoot(t *testing.T) {
	for n := range configuredFiles(newBundled(t, itself)) {
		b := newBundled(t, itself)
		c := configuredFiles(b)[n]
		t.Run(c.path, func(t *testing.T) {
			b.t = t
			if c.prepare != nil {
				c.prepare(b.host)
			}
			ref := parse(t, b.name+":x")
			check := func(what, want string) {
				t.Helper()
				if _, err := b.lookUp(t.Context(), ref); want != "" {
					refused(t, err, fault.Refused, want, "")
				} else if err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
			if _, err := b.lookUp(t.Context(), ref); (err == nil) != (c.want != "") {
				t.Fatalf("without the file it is the same: %v", err)
			}
			b.write(c.path, c.content)
			check("a file", c.want)
			if c.linked == "" {
				c.linked = c.want
			}
			below := "/" + filepath.Base(t.TempDir()) + "-below/file"
			b.write(below, c.content)
			b.link(c.path, below)
			check("an absolute link", c.linked)
			outside := filepath.Join(t.TempDir(), "outside")
			if err := os.WriteFile(outside, []byte("another content\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			b.write(outside, c.content)
			b.link(c.path, outside)
			check("an absolute link to what exists outside, too", c.linked)
			b.link(c.path, strings.Repeat("../", 20)+below) // ".." ends at the root
			check("a relative link that leads out", c.linked)

			dir, err := os.MkdirTemp("/var/tmp", "pivot-outside-*") // not below /dev, as a directory for temporary files may be
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			only := filepath.Join(dir, "only-outside")
			if err := os.WriteFile(only, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			b.link(c.path, only)
			if c.linked != c.want {
				check("an absolute link to what exists outside only", c.linked)
			} else if _, err := b.lookUp(t.Context(), ref); c.want == "" && err == nil || c.want != "" && err != nil && strings.Contains(err.Error(), c.want) {
				t.Errorf("what exists outside only is read: %v", err)
			}
		})
	}
}

// TestLinkedDirectoriesBelowRoot: the same of directories on the way to the files.
func TestLinkedDirectoriesBelowRoot(t *testing.T) {
	h := newHost(t, registry.Options{})
	ref, _ := h.push("x", plain(t))
	h.write("/etc/containers/policy.json", accepting)
	h.write("/etc/containers/registries.d/1.yaml", "docker: {}\n")
	if err := os.MkdirAll(h.root+"/usr/lib", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/etc/containers/certs.d/" + h.registry.Host(), "/etc/containers/certs.d", "/var/lib/kubelet"} {
		if err := os.Rename(h.root+name, h.root+"/usr/lib/"+filepath.Base(name)); err != nil {
			t.Fatal(err)
		}
		h.link(name, "/usr/lib/"+filepath.Base(name))
		if _, err := h.lookUp(t.Context(), ref); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.Rename(h.root+"/etc/containers/registries.d", h.root+"/usr/lib/registries.d"); err != nil {
		t.Fatal(err)
	}
	h.link("/etc/containers/registries.d", "/usr/lib/registries.d")
	_, err := h.lookUp(t.Context(), ref)
	refused(t, err, fault.Refused, "cannot read "+h.root+"/etc/containers/registries.d: an absolute symbolic link", "make the link relative")
	h.link("/etc/containers/registries.d", "../../usr/lib/registries.d")
	if _, err := h.lookUp(t.Context(), ref); err != nil {
		t.Error(err)
	}
}

// TestMaskedBelowRoot: a file that is a link to /dev/null is there, and empty, though the root has no devices.
func TestMaskedBelowRoot(t *testing.T) {
	h := newHost(t, registry.Options{})
	ref, _ := h.push("x", plain(t))
	block := fmt.Sprintf("[[registry]]\nlocation = %q\nblocked = true\n", h.registry.Host())
	for _, name := range []string{"registries.conf", "registries.conf.d/1.conf"} {
		h.write("/usr/share/containers/"+name, block)
		_, err := h.lookUp(t.Context(), ref)
		refused(t, err, fault.Refused, "is blocked", "")
		h.link("/etc/containers/"+name, os.DevNull)
		if _, err := h.lookUp(t.Context(), ref); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	h.link("/etc/containers/policy.json", os.DevNull)
	_, err := h.lookUp(t.Context(), ref)
	refused(t, err, fault.Refused, "cannot read the signature policy", "policy.json")
}

// TestOwnCertificateBelowRoot: the certificate that the host shows a registry is found behind links, too.
func TestOwnCertificateBelowRoot(t *testing.T) {
	h := newHost(t, registry.Options{})
	ref, _ := h.push("x", plain(t))
	dir := "/etc/containers/certs.d/" + h.registry.Host()
	h.link(dir+"/own.cert", "/keys/own.cert")
	_, err := h.lookUp(t.Context(), ref)
	refused(t, err, fault.Refused, dir+"/own.cert has no key beside it, own.key", "")
	h.link(dir+"/own.key", "/keys/own.key")
	h.write("/keys/own.key", "no key")
	h.write("/keys/own.cert", "no certificate")
	_, err = h.lookUp(t.Context(), ref)
	refused(t, err, fault.Refused, "cannot use "+h.root+dir+"/own.cert with its key: ", "")
}

// TestPolicyOfTheImage: the policy that an image brings in /usr/share is like that of the administrator: its keys are
// below the root, and errors name it.
func TestPolicyOfTheImage(t *testing.T) {
	b := newBundled(t, itself)
	rule := `{"type":"sigstoreSigned","keyPath":"/keys/cosign.pub","signedIdentity":{"type":"matchRepository"}}`
	text, err := json.Marshal(map[string]any{
		"default": []any{map[string]string{"type": "reject"}}, "transports": map[string]any{"docker": map[string]any{b.name: []any{json.RawMessage(rule)}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	b.write("/usr/share/containers/policy.json", string(text))
	ref := parse(t, b.name+":x")
	_, err = b.lookUp(t.Context(), ref)
	refused(t, err, fault.Refused, b.root+"/keys/cosign.pub", b.root+"/usr/share/containers/policy.json")
	b.write("/keys/cosign.pub", string(b.key.public(t)))
	if image, err := b.lookUp(t.Context(), ref); err != nil || !strings.HasPrefix(image.Policy, "transports.docker") {
		t.Errorf("%q, %v", image.Policy, err)
	}
	b.write("/usr/share/containers/policy.json", "{")
	_, err = b.lookUp(t.Context(), ref)
	refused(t, err, fault.Refused, "cannot read the signature policy", "correct "+b.root+"/usr/share/containers/policy.json")
	t.Setenv("CONTAINERS_POLICY_JSON", b.root+"/none.json")
	_, err = b.lookUp(t.Context(), ref)
	refused(t, err, fault.Refused, "cannot read the signature policy", "correct "+b.root+"/none.json")
}

// TestBrokenConfiguration: each file of the configuration that cannot be read is named, with what to do about it.
func TestBrokenConfiguration(t *testing.T) {
	h := newHost(t, registry.Options{})
	ref, _ := h.push("x", plain(t))
	const named = "correct or remove the file that the error names"
	certs := "/etc/containers/certs.d/" + h.registry.Host()
	for _, c := range []struct{ path, content, want, hint string }{
		{"/run/ostree", "a file where a directory should be", "cannot read pull secret ROOT/run/ostree/auth.json: ", "correct or remove ROOT/run/ostree/auth.json"},
		{"/etc/ostree/auth.json", "", "cannot read pull secret ROOT/etc/ostree/auth.json: ", "correct or remove ROOT/etc/ostree/auth.json"},
		{"/etc/ostree/auth.json", "{", "cannot read pull secret ROOT/etc/ostree/auth.json: ", "correct or remove ROOT/etc/ostree/auth.json"},
		{"/etc/containers/registries.conf", "bad = [", "ROOT/etc/containers/registries.conf", named},
		{"/etc/containers/registries.conf.d/1.conf", "bad = [", "ROOT/etc/containers/registries.conf.d/1.conf", named},
		{"/etc/containers/registries.d/bad.yaml", "docker: [", "cannot read where signatures are kept: parsing ROOT/etc/containers/registries.d/bad.yaml", named},
		{certs + "/own.cert", "", "ROOT" + certs + "/own.cert has no key", named},
		{"/etc/containers/policy.json", "{", "cannot read the signature policy", "correct ROOT/etc/containers/policy.json"},
		{"/etc/pivot/proxy.env/file", "a directory where a file should be", "cannot read the proxy settings: ", "correct or remove ROOT/etc/pivot/proxy.env"},
		{"/etc/mco/proxy.env/file", "a directory where a file should be", "cannot read the proxy settings: ", "correct or remove ROOT/etc/mco/proxy.env"},
	} {
		h.write(c.path, c.content)
		_, err := h.lookUp(t.Context(), ref)
		refused(t, err, fault.Refused, strings.ReplaceAll(c.want, "ROOT", h.root), strings.ReplaceAll(c.hint, "ROOT", h.root))
		h.remove(c.path)
		if dir, is := strings.CutSuffix(c.path, "/file"); is {
			h.remove(dir)
		}
	}
	if _, err := h.lookUp(t.Context(), ref); err != nil {
		t.Error(err)
	}
}

// link makes a symbolic link in place of what is there.
func (h *host) link(path, target string) {
	h.t.Helper()
	name := filepath.Join(h.root, path)
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.Symlink(target, name)); err != nil {
		h.t.Fatal(err)
	}
}

// TestPipesInTheConfiguration: a pipe in a directory of files is refused by its name, and nothing waits for what
// would be written to it; in the running system, too.
func TestPipesInTheConfiguration(t *testing.T) {
	h := newHost(t, registry.Options{})
	ref, _ := h.push("x", plain(t))
	for _, path := range []string{
		"/etc/containers/registries.conf.d/1.conf", "/etc/containers/registries.d/1.yaml", "/etc/containers/certs.d/" + h.registry.Host() + "/pipe.crt",
	} {
		name := h.root + path
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), unix.Mkfifo(name, 0o644)); err != nil {
			t.Fatal(err)
		}
		_, err := h.lookUp(t.Context(), ref)
		refused(t, err, fault.Refused, name+": it is not a regular file", "correct or remove the file that the error names")
		h.remove(path)
	}
	if _, err := h.lookUp(t.Context(), ref); err != nil {
		t.Error(err)
	}
	users := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", users)
	name := users + "/containers/registries.conf.d/1.conf"
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), unix.Mkfifo(name, 0o644)); err != nil {
		t.Fatal(err)
	}
	h.puller.Root = "/"
	_, err := h.lookUp(t.Context(), ref)
	refused(t, err, fault.Refused, name+": it is not a regular file", "")
}
