package osimage_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"machine-pivot/internal/osimage"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/retry"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/ostreetree"
	"machine-pivot/test/worlds/registry"
)

// host is a machine's root directory together with a running registry.
type host struct {
	stores   bool // imports only store images, and no host is to boot them
	t        *testing.T
	root     string
	registry *registry.Registry
	puller   *osimage.Puller
	report   func(osimage.Progress) // called by imports; may be nil

	mu    sync.Mutex
	notes []string
}

func (h *host) note(message string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notes = append(h.notes, message)
}

// logged returns the notes so far.
func (h *host) logged() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.notes, "\n")
}

// newHost starts a registry and returns a host that has its CA and pull secret. A short run has a third of the
// tests of one (sample.World).
func newHost(t *testing.T, opts registry.Options) *host {
	t.Helper()
	sample.World(t)
	ownEnvironment(t)
	return startHost(t, opts)
}

// startHost is newHost for a caller that has called ownEnvironment already.
func startHost(t *testing.T, opts registry.Options) *host {
	t.Helper()
	h := makeHost(t)
	h.registry = startRegistry(t, opts)
	h.trust(h.registry)
	h.write("/var/lib/kubelet/config.json", string(h.registry.PullSecret(h.registry.Host())))
	return h
}

// newLocalHost returns a host without a network.
func newLocalHost(t *testing.T) *host {
	t.Helper()
	ownEnvironment(t)
	return makeHost(t)
}

// ownEnvironment isolates the library from the configuration of the user who runs the test.
func ownEnvironment(t *testing.T) {
	t.Helper()
	for _, name := range []string{"http_proxy", "https_proxy", "no_proxy"} {
		unsetenv(t, name)
		unsetenv(t, strings.ToUpper(name))
	}
	t.Setenv("HOME", t.TempDir()) // the library reads a user's configuration too
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("XDG_RUNTIME_DIR", "")
}

// makeHost returns a host that tries a download three times without waiting.
func makeHost(t *testing.T) *host {
	h := &host{t: t, root: t.TempDir()}
	h.puller = &osimage.Puller{Root: h.root, Log: h.note, Retry: retry.Policy{
		Tries: 3, Sleep: func(ctx context.Context, _ time.Duration) error { return context.Cause(ctx) },
	}}
	return h
}

// unsetenv unsets a variable for the duration of the test.
func unsetenv(t *testing.T, name string) {
	t.Helper()
	t.Setenv(name, "")
	if err := os.Unsetenv(name); err != nil {
		t.Fatal(err)
	}
}

func startRegistry(t *testing.T, opts registry.Options) *registry.Registry {
	t.Helper()
	r, err := registry.Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// trust gives the host a registry's CA.
func (h *host) trust(r *registry.Registry) {
	h.write("/etc/containers/certs.d/"+r.Host()+"/ca.crt", string(r.CA()))
}

func (h *host) write(path, content string) {
	h.t.Helper()
	name := filepath.Join(h.root, path)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) remove(path string) {
	h.t.Helper()
	if err := os.Remove(filepath.Join(h.root, path)); err != nil {
		h.t.Fatal(err)
	}
}

// push stores an image as os:NAME and returns its reference by tag and its digest.
func (h *host) push(name string, img v1.Image) (imageref.Reference, string) {
	h.t.Helper()
	return h.ref(name), pushTo(h.t, h.registry, name, img)
}

// pushTo stores an image as os:NAME in a registry and returns its digest.
func pushTo(t *testing.T, r *registry.Registry, name string, img v1.Image) string {
	t.Helper()
	digest, err := r.Push(context.Background(), "test/os", name, img)
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

func (h *host) ref(tag string) imageref.Reference {
	return parse(h.t, h.registry.Host()+"/test/os:"+tag)
}

func parse(t *testing.T, s string) imageref.Reference {
	t.Helper()
	ref, err := imageref.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// lookUp opens an image, closes it and returns its description.
func (h *host) lookUp(ctx context.Context, ref imageref.Reference) (osimage.Image, error) {
	image, err := h.puller.Open(ctx, ref)
	if err != nil {
		return osimage.Image{}, err
	}
	return image.Image, image.Close()
}

// importRef opens and imports an image.
func (h *host) importRef(ref imageref.Reference, repo string) (osimage.Result, error) {
	h.t.Helper()
	return h.importWith(h.t.Context(), ref, repo)
}

// importWith is importRef with a context.
func (h *host) importWith(ctx context.Context, ref imageref.Reference, repo string) (osimage.Result, error) {
	h.t.Helper()
	image, err := h.puller.Open(ctx, ref)
	if err != nil {
		return osimage.Result{}, err
	}
	defer image.Close()
	if !h.stores {
		image.Accept = func(ostree.PrepareRoot) error { return nil }
	}
	return image.Import(ctx, openRepo(h.t, repo), h.report)
}

func openRepo(t *testing.T, path string) *ostree.Repo {
	t.Helper()
	repo, err := ostree.OpenRepo(path)
	if err != nil {
		t.Fatal(err)
	}
	return repo
}

// ostreeTool runs the real ostree. It skips the test if ostree is missing.
func ostreeTool(t *testing.T, args ...string) string {
	t.Helper()
	need.Ostree(t)
	out, err := ostreetree.Ostree(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// archive returns an archive-mode repository with one commit of a small OS tree.
func archive(t *testing.T) (repo, commit string) {
	t.Helper()
	need.Ostree(t)
	repo = filepath.Join(t.TempDir(), "archive")
	commit, err := ostreetree.Archive(repo)
	if err != nil {
		t.Fatal(err)
	}
	return repo, commit
}

// legacy builds a legacy image in a directory of the test.
func legacy(t *testing.T, repo, commit string, opts ...oscontainer.Option) v1.Image {
	t.Helper()
	img, err := oscontainer.Legacy(repo, commit, "1.2.3", append(opts, oscontainer.WithWorkDir(t.TempDir()))...)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// bare returns the path of a new bare repository.
func bare(t *testing.T) string {
	t.Helper()
	need.Ostree(t)
	repo := filepath.Join(t.TempDir(), "bare")
	if err := ostreetree.Init(repo, "bare"); err != nil {
		t.Fatal(err)
	}
	return repo
}

// plain returns an image without an ostree repository, for tests that need no content.
func plain(t *testing.T, opts ...oscontainer.Option) v1.Image {
	t.Helper()
	return legacy(t, "", strings.Repeat("a", 64), append(opts, oscontainer.WithoutRepo())...)
}
