package osimage_test

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"machine-pivot/internal/fault"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/registry"
)

// mirrored is a host with a registry, the origin, and its mirror.
type mirrored struct {
	*host
	mirror      *registry.Registry
	tag, digest string // of an image that is in both
	config      string // digest of its config
}

// newMirrored starts both registries. Their pull secrets are in different files.
func newMirrored(t *testing.T) *mirrored {
	t.Helper()
	m := &mirrored{host: newHost(t, registry.Options{}), tag: "x"}
	m.mirror = startRegistry(t, registry.Options{Username: "other", Password: "other-secret"})
	m.trust(m.mirror)
	m.write("/run/ostree/auth.json", string(m.mirror.PullSecret(m.mirror.Host())))
	img := plain(t)
	_, m.digest = m.push(m.tag, img)
	config, err := img.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	m.config = config.String()
	pushTo(t, m.mirror, m.tag, img)
	m.configure("", "")
	return m
}

// configure writes registries.conf with settings for the registry and its mirror.
func (m *mirrored) configure(registry, mirror string) {
	m.write("/etc/containers/registries.conf", m.names(`
[[registry]]
location = "ORIGIN/test"
`+registry+`
[[registry.mirror]]
location = "MIRROR/test"
`+mirror))
}

// names replaces ORIGIN and MIRROR in a text by the registries' names.
func (m *mirrored) names(text string) string {
	return strings.NewReplacer("ORIGIN", m.registry.Host(), "MIRROR", m.mirror.Host()).Replace(text)
}

// silent returns the address of a server that accepts connections and sends nothing.
func silent(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String()
}

func TestMirrorChosen(t *testing.T) {
	down := func(r *registry.Registry) {
		t.Helper()
		if err := r.SetDown(true); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		prepare  func(t *testing.T, m *mirrored)
		byDigest bool
		origin   bool // the image must come from the origin, not from the mirror
	}{
		"first":       {prepare: func(t *testing.T, m *mirrored) {}},
		"origin down": {prepare: func(t *testing.T, m *mirrored) { down(m.registry) }},
		"mirror down": {prepare: func(t *testing.T, m *mirrored) { down(m.mirror) }, origin: true},
		"mirror in trouble": {
			prepare: func(t *testing.T, m *mirrored) { m.mirror.FailNext(100, http.StatusBadGateway) }, origin: true,
		},
		"mirror lacks it": {
			prepare: func(t *testing.T, m *mirrored) {
				_, m.digest = m.push("x", plain(t, oscontainer.WithLabel("version", "2")))
			},
			byDigest: true, origin: true,
		},
		"mirror's copy damaged": {
			prepare: func(t *testing.T, m *mirrored) {
				if err := m.mirror.FlipByte(m.config, 20); err != nil {
					t.Fatal(err)
				}
			},
			origin: true,
		},
		"mirror silent": {
			prepare: func(t *testing.T, m *mirrored) {
				m.puller.Patience = 300 * time.Millisecond
				m.write("/etc/containers/registries.conf", m.names(`
[[registry]]
location = "ORIGIN/test"
[[registry.mirror]]
location = "`+silent(t)+`/test"
`))
			},
			origin: true,
		},
		"no credentials for the mirror": {
			prepare: func(t *testing.T, m *mirrored) { m.remove("/run/ostree/auth.json") }, origin: true,
		},
		"mirror not trusted": {
			prepare: func(t *testing.T, m *mirrored) { m.remove("/etc/containers/certs.d/" + m.mirror.Host() + "/ca.crt") }, origin: true,
		},
		"insecure mirror": {
			prepare: func(t *testing.T, m *mirrored) {
				m.remove("/etc/containers/certs.d/" + m.mirror.Host() + "/ca.crt")
				m.configure("", "insecure = true")
			},
		},
		"blocked origin":               {prepare: func(t *testing.T, m *mirrored) { m.configure("blocked = true", "") }},
		"by digest only, tag":          {prepare: func(t *testing.T, m *mirrored) { m.configure("mirror-by-digest-only = true", "") }, origin: true},
		"by digest only, digest":       {prepare: func(t *testing.T, m *mirrored) { m.configure("mirror-by-digest-only = true", "") }, byDigest: true},
		"digest-only mirror, tag":      {prepare: func(t *testing.T, m *mirrored) { m.configure("", `pull-from-mirror = "digest-only"`) }, origin: true},
		"tag-only mirror, tag":         {prepare: func(t *testing.T, m *mirrored) { m.configure("", `pull-from-mirror = "tag-only"`) }},
		"tag-only mirror, digest":      {prepare: func(t *testing.T, m *mirrored) { m.configure("", `pull-from-mirror = "tag-only"`) }, byDigest: true, origin: true},
		"digest-only mirror, a digest": {prepare: func(t *testing.T, m *mirrored) { m.configure("", `pull-from-mirror = "digest-only"`) }, byDigest: true},
		"drop-in": {prepare: func(t *testing.T, m *mirrored) {
			m.write("/etc/containers/registries.conf.d/10-mirror.conf", m.names(`
[[registry]]
location = "ORIGIN/test"
blocked = true
[[registry.mirror]]
location = "MIRROR/test"
`))
			m.write("/etc/containers/registries.conf", "")
		}},
		"mirror of itself is not asked": {prepare: func(t *testing.T, m *mirrored) {
			m.write("/etc/containers/registries.conf.d/10-other.conf", m.names(`
[[registry]]
location = "MIRROR"
[[registry.mirror]]
location = "no-such-host.invalid"
`))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMirrored(t)
			c.prepare(t, m)
			ref := m.ref(m.tag)
			if c.byDigest {
				ref = ref.Pinned(m.digest)
			}
			image, err := m.lookUp(t.Context(), ref)
			if err != nil {
				t.Fatalf("%v\nhint: %s", err, fault.HintOf(err))
			}
			if want := m.registry.Host() + "/test/os@" + m.digest; image.Reference.String() != want {
				t.Errorf("reference %s, want %s", image.Reference, want)
			}
			source := ""
			if !c.origin {
				source = m.mirror.Host() + "/test/os@" + m.digest
			}
			if image.Source.String() != source {
				t.Errorf("it came from %q, want %q", image.Source, source)
			}
		})
	}
}

// TestMirrorsInOrder: the image is read from the first of two mirrors and the registry that
// responds. Those after it are not contacted, and there are notes about those before it.
func TestMirrorsInOrder(t *testing.T) {
	m := newMirrored(t)
	second := startRegistry(t, registry.Options{Anonymous: true})
	m.trust(second)
	pushTo(t, second, m.tag, plain(t))
	m.configure("", m.names("[[registry.mirror]]\nlocation = \""+second.Host()+"/test\"\n"))
	order := []*registry.Registry{m.mirror, second, m.registry}
	for first, from := range order {
		var before []int
		for _, r := range order {
			before = append(before, r.Requests())
		}
		m.notes = nil
		image, err := m.lookUp(t.Context(), m.ref(m.tag))
		if err != nil {
			t.Fatal(err)
		}
		source := from.Host() + "/test/os@" + m.digest
		if from == m.registry {
			source = ""
		}
		if image.Source.String() != source {
			t.Errorf("it came from %q, want %q", image.Source, source)
		}
		for i, r := range order {
			if asked := r.Requests() > before[i]; asked != (i == first) {
				t.Errorf("from place %d: place %d was asked: %v", first, i, asked)
			}
		}
		if len(m.notes) != first+1 { // the last note is about the missing policy
			t.Fatalf("notes: %q", m.notes)
		}
		for i, passed := range order[:first] {
			want := passed.Host() + "/test/os does not give the image, trying " + order[i+1].Host() + "/test/os: "
			if !strings.HasPrefix(m.notes[i], want) || !strings.Contains(m.notes[i], "connection refused") {
				t.Errorf("note %q, want %q…", m.notes[i], want)
			}
		}
		if err := from.SetDown(true); err != nil {
			t.Fatal(err)
		}
	}
	_, err := m.lookUp(t.Context(), m.ref(m.tag))
	for _, r := range order {
		refused(t, err, fault.Unavailable, "\n  "+r.Host()+"/test/os: ", "reach "+m.mirror.Host())
	}
}

// TestMirrorImport: layers are fetched from the mirror too.
func TestMirrorImport(t *testing.T) {
	m := newMirrored(t)
	repo, commit := archive(t)
	img := legacy(t, repo, commit)
	m.push("os", img)
	pushTo(t, m.mirror, "os", img)
	if err := m.registry.SetDown(true); err != nil {
		t.Fatal(err)
	}
	target := bare(t)
	result, err := m.importRef(m.ref("os"), target)
	if err != nil {
		t.Fatal(err)
	}
	checkImported(t, target, commit, result)
}

// beyond is content of a size that needs more memory than the import takes: a frame of zstd with the largest window.
func beyond(size int64) []byte {
	content := make([]byte, size)
	copy(content, "\x28\xb5\x2f\xfd\x00\xff")
	return content
}

// TestMirrorSendsWhatIsBeyondALimit: a limit that the bytes of a mirror reach, which are not those of the layer, says
// nothing of the image: it comes from the next endpoint. One that the image reaches is tried at no other.
func TestMirrorSendsWhatIsBeyondALimit(t *testing.T) {
	m := newMirrored(t)
	repo, commit := archive(t)
	img := legacy(t, repo, commit)
	m.push("os", img)
	pushTo(t, m.mirror, "os", img)
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	last := layers[len(layers)-1]
	digest, derr := last.Digest()
	size, serr := last.Size()
	if err := errors.Join(derr, serr); err != nil {
		t.Fatal(err)
	}
	m.mirror.Spoil(registry.Rule{On: digest.String(), Fault: func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(beyond(size)))
		})
	}})
	target := bare(t)
	result, err := m.importRef(m.ref("os"), target)
	if err != nil {
		t.Fatal(err)
	}
	checkImported(t, target, commit, result)

	m.mirror.Spoil()
	large, err := mutate.AppendLayers(img, static.NewLayer(beyond(1000), types.DockerLayer))
	if err != nil {
		t.Fatal(err)
	}
	m.push("large", large)
	pushTo(t, m.mirror, "large", large)
	_, err = m.importRef(m.ref("large"), bare(t))
	refused(t, err, fault.BadInput, m.names("MIRROR/test/os: "), "the limits are in")
	if strings.Contains(err.Error(), m.names("ORIGIN/test/os: ")) {
		t.Errorf("it is tried at another endpoint: %v", err)
	}
}

// TestMirrorsFail (P9): the error names each endpoint with its failure, and its kind tells whether a
// retry can help with any of them.
func TestMirrorsFail(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(m *mirrored)
		kind    fault.Kind
		texts   []string
		hint    string
	}{
		"mirror in trouble, origin refuses": {
			func(m *mirrored) { m.mirror.FailNext(100, 503); m.registry.FailNext(100, 403) }, fault.Unavailable,
			[]string{"tried 2 of the 2 places it may come from:\n", "  MIRROR/test/os: ", "503", "  ORIGIN/test/os: ", "fault of the test registry"}, "MIRROR is in trouble",
		},
		"mirror refuses, origin down": {
			func(m *mirrored) {
				m.remove("/run/ostree/auth.json")
				_ = m.registry.SetDown(true)
			}, fault.Unavailable,
			[]string{"  MIRROR/test/os: ", "unauthorized", "  ORIGIN/test/os: ", "connection refused"}, "reach ORIGIN",
		},
		"both lack it": {
			func(m *mirrored) { m.tag = "missing" }, fault.Refused,
			[]string{"  MIRROR/test/os: ", "  ORIGIN/test/os: "}, "is the tag right",
		},
		"origin blocked": {
			func(m *mirrored) { m.tag = "missing"; m.configure("blocked = true", "") }, fault.Refused,
			[]string{"  MIRROR/test/os: ", "  ORIGIN/test/os: registry ORIGIN/test is blocked in registries.conf"}, "is the tag right",
		},
		"both blocked": {
			func(m *mirrored) {
				m.write("/etc/containers/registries.conf.d/10-block.conf", "[[registry]]\nlocation = \"127.0.0.1\"\nblocked = true\n[[registry]]\nlocation = \""+m.mirror.Host()+"\"\nblocked = true\n")
				m.configure("blocked = true", "")
			}, fault.Refused,
			[]string{"  MIRROR/test/os: registry MIRROR is blocked", "  ORIGIN/test/os: registry ORIGIN/test is blocked"}, "/etc/containers/registries.conf",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMirrored(t)
			c.prepare(m)
			_, err := m.lookUp(t.Context(), m.ref(m.tag))
			for _, text := range c.texts {
				refused(t, err, c.kind, m.names(text), m.names(c.hint))
			}
		})
	}
}

func TestBlocked(t *testing.T) {
	h := newHost(t, registry.Options{})
	ref, _ := h.push("x", plain(t))
	h.write("/etc/containers/registries.conf", "[[registry]]\nlocation = \""+h.registry.Host()+"\"\nblocked = true\n")
	_, err := h.lookUp(t.Context(), ref)
	refused(t, err, fault.Refused, "registry "+h.registry.Host()+" is blocked", h.root+"/etc/containers/registries.conf")
	if n := h.registry.Requests(); n != 0 {
		t.Errorf("a blocked registry was asked %d times", n)
	}
}

// TestOtherLocation: the image is read from the location that a prefix in registries.conf
// stands for; the signature policy applies to the requested name.
func TestOtherLocation(t *testing.T) {
	h := newHost(t, registry.Options{})
	_, digest := h.push("x", plain(t))
	ref := parse(t, "written.example/os:x")
	entry := "[[registry]]\nprefix = \"written.example\"\nlocation = \"" + h.registry.Host() + "/test\"\n"
	h.write("/etc/containers/registries.conf", entry)
	image, err := h.lookUp(t.Context(), ref)
	if err != nil || image.Reference.String() != "written.example/os@"+digest || image.Source.String() != h.registry.Host()+"/test/os@"+digest {
		t.Errorf("%s from %s, %v", image.Reference, image.Source, err)
	}
	h.policy("written.example", `{"type":"reject"}`)
	_, err = h.lookUp(t.Context(), ref)
	refused(t, err, fault.Refused, "  "+h.registry.Host()+`/test/os: the signature policy rejects it by transports.docker["written.example"]: reject`, "policy.json")

	asked := h.registry.Requests()
	h.write("/etc/containers/registries.conf", entry+"blocked = true\n")
	_, err = h.lookUp(t.Context(), ref)
	refused(t, err, fault.Refused, "registry written.example is blocked", "registries.conf")
	if n := h.registry.Requests(); n != asked {
		t.Errorf("a blocked registry was asked %d times", n-asked)
	}
}

func TestRegistriesConfErrors(t *testing.T) {
	h := newHost(t, registry.Options{})
	h.write("/etc/containers/registries.conf", "[[registry")
	_, err := h.lookUp(t.Context(), h.ref("x"))
	refused(t, err, fault.Refused, h.root+"/etc/containers/registries.conf", "")
}

func TestNamespaceProxy(t *testing.T) {
	m := newMirrored(t)
	m.configure("", `namespace-proxy = "quay.io"`)
	image, err := m.lookUp(t.Context(), m.ref("x"))
	if err != nil || !image.Source.IsZero() {
		t.Errorf("a mirror that cannot be asked as configured was: %s, %v", image.Source, err)
	}
	_ = m.registry.SetDown(true)
	_, err = m.lookUp(t.Context(), m.ref("x"))
	refused(t, err, fault.Unavailable, "namespace-proxy in registries.conf is not implemented", "")
}
