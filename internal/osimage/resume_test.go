package osimage_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/retry"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/registry"
)

// tiny returns an archive repository with one commit of three files and what an OS must have.
func tiny(t *testing.T) (repo, commit string) {
	t.Helper()
	repo, tree := filepath.Join(t.TempDir(), "tiny"), t.TempDir()
	ostreeTool(t, "init", "--repo="+repo, "--mode=archive")
	for name, content := range map[string]string{
		"a": "content of a", "b": "content of b", "c": "content of c",
		"sysroot/empty": "", "usr/lib/modules/1/vmlinuz": "kernel", "usr/lib/modules/1/initramfs.img": "initramfs", "usr/lib/os-release": "ID=tiny\n",
	} {
		name = filepath.Join(tree, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return repo, ostreeTool(t, "commit", "--repo="+repo, "--branch=tiny", "--timestamp=@0", "--add-metadata-string=version=1.2.3", tree)
}

// both combines two faults.
func both(outer, inner registry.Fault) registry.Fault {
	return func(next http.Handler) http.Handler { return outer(inner(next)) }
}

// pushed returns a host with a registry that has a legacy image of a repository.
func pushed(t *testing.T, repo, commit string, opts registry.Options) (*host, osimage.Image) {
	t.Helper()
	h := newHost(t, opts)
	ref, _ := h.push("x", legacy(t, repo, commit, oscontainer.WithLayers(1)))
	image, err := h.lookUp(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	return h, image
}

// imports imports an image and checks that the commit is complete.
func (h *host) imports(image osimage.Image, commit string) {
	h.t.Helper()
	target := bare(h.t)
	result, err := h.importWith(h.t.Context(), image.Reference, target)
	if err != nil {
		h.t.Fatal(err)
	}
	checkImported(h.t, target, commit, result)
}

// TestCutAnywhere cuts consecutive downloads at increasing offsets, so that the layer arrives in
// pieces of a few bytes.
func TestCutAnywhere(t *testing.T) {
	repo, commit := tiny(t)
	h, image := pushed(t, repo, commit, registry.Options{})
	layer := image.Layers[1]
	var cuts []registry.Rule
	for at := int64(0); at <= layer.Size; at++ {
		if at < 200 || at > layer.Size-100 || at%17 == 0 { // every offset in magic numbers, the first header and the checksum at the end
			cuts = append(cuts, registry.Rule{On: layer.Digest, Times: 1, Fault: registry.CutAt(at)})
		}
	}
	h.registry.Spoil(cuts...)
	h.puller.Retry.Tries = len(cuts) + 1
	h.watchProgress(t)
	before, requests := h.registry.BytesServed(), h.registry.Requests()
	h.imports(image, commit)
	if n := h.registry.Requests() - requests; n < len(cuts) {
		t.Errorf("%d requests for %d cuts", n, len(cuts))
	}
	if sent := h.registry.BytesServed() - before; sent > image.Bytes+int64(len(cuts))*tail+2000 {
		t.Errorf("%d bytes sent for an image of %d and %d cuts", sent, image.Bytes, len(cuts))
	}
}

// TestCutPieces cuts each response after some bytes: the number of tries does not matter as
// long as each makes progress.
func TestCutPieces(t *testing.T) {
	if testing.Short() {
		t.Skip("waits between many tries; TestCutAnywhere has one")
	}
	repo, commit := archive(t)
	h, image := pushed(t, repo, commit, registry.Options{})
	h.registry.Spoil(registry.Rule{On: image.Layers[1].Digest, Fault: registry.CutAfter(1<<20 + 2*tail)})
	h.watchProgress(t)
	h.imports(image, commit)
}

// TestCutWithoutRanges uses a registry without support for ranges: bytes that were read before
// are read again and compared, but not passed to the import twice.
func TestCutWithoutRanges(t *testing.T) {
	repo, commit := tiny(t)
	h, image := pushed(t, repo, commit, registry.Options{})
	layer := image.Layers[1]
	for n, at := range []int64{layer.Size / 2, 1, layer.Size - 1} {
		if testing.Short() && n > 0 {
			break
		}
		h.registry.Spoil(
			registry.Rule{On: layer.Digest, Times: 2, Fault: both(registry.NoRanges(), registry.CutAt(at))}, // our request and that of the library
			registry.Rule{On: layer.Digest, Fault: registry.NoRanges()},
		)
		h.watchProgress(t)
		h.imports(image, commit)
	}
}

// TestTokenExpires: a token expires during the download of a layer, before its stated lifetime.
func TestTokenExpires(t *testing.T) {
	repo, commit := archive(t)
	h, image := pushed(t, repo, commit, registry.Options{Bearer: true})
	layer := image.Layers[1].Digest
	for name, rules := range map[string][]registry.Rule{
		"in the midst":     {{On: layer, Times: 1, Fault: both(h.registry.ExpiringTokens(), registry.CutAt(5000))}},
		"before the layer": {{On: "/blobs/", Times: 1, Fault: h.registry.ExpiringTokens()}}, // with the config
		"twice": {
			{On: layer, Times: 1, Fault: both(h.registry.ExpiringTokens(), registry.CutAt(5000))},
			{On: layer, Times: 1, Fault: both(h.registry.ExpiringTokens(), registry.CutAt(9000))},
		},
		"while the new one is got": {
			{On: layer, Times: 1, Fault: both(h.registry.ExpiringTokens(), registry.CutAt(5000))},
			{On: "/token", Skip: 1, Times: 1, Fault: registry.Status(503)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			sample.Short(t, 4)
			h.t = t
			h.registry.Spoil(rules...)
			before := h.registry.BytesServed()
			h.imports(image, commit)
			if sent := h.registry.BytesServed() - before; sent > image.Bytes+4000 {
				t.Errorf("%d bytes sent for an image of %d", sent, image.Bytes)
			}
			h.checkSecrets(t, nil)
		})
	}
}

// recordWaits gives the puller a policy that only records its waits.
func (h *host) recordWaits(policy retry.Policy) *[]time.Duration {
	var waits []time.Duration
	policy.Sleep = func(_ context.Context, d time.Duration) error { waits = append(waits, d); return nil }
	h.puller.Retry = policy
	return &waits
}

// TestRetryAfter: the import waits at least as long as the registry asks for, and at most half as
// long again. Such waits are no failed tries.
func TestRetryAfter(t *testing.T) {
	repo, commit := tiny(t)
	h, image := pushed(t, repo, commit, registry.Options{})
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		waits := h.recordWaits(retry.Policy{First: time.Second, Cap: 3 * time.Second, Tries: 2, Bound: time.Hour})
		h.registry.Spoil(registry.Rule{On: image.Layers[1].Digest, Times: 5, Fault: registry.Status(status, "Retry-After", "7")})
		requests := h.registry.Requests()
		h.imports(image, commit)
		if len(*waits) != 5 || slices.Min(*waits) < 7*time.Second || slices.Max(*waits) > 11*time.Second {
			t.Errorf("%d: waits %v", status, *waits)
		}
		if n := count(h.registry.RequestLog()[requests:], image.Layers[1].Digest); n != 6 {
			t.Errorf("%d: %d requests for the layer", status, n)
		}
	}
}

// count returns how many requests have a text in them.
func count(requests []string, text string) (n int) {
	for _, r := range requests {
		if strings.Contains(r, text) {
			n++
		}
	}
	return n
}

// TestPatienceIsBounded: a registry that asks for patience again and again is left in the end.
func TestPatienceIsBounded(t *testing.T) {
	repo, commit := tiny(t)
	h, image := pushed(t, repo, commit, registry.Options{})
	waits := h.recordWaits(retry.Policy{First: time.Second, Cap: 3 * time.Second, Tries: 3, Bound: 2 * time.Minute})
	h.registry.Spoil(registry.Rule{On: image.Layers[1].Digest, Fault: registry.Status(503, "Retry-After", "20")})
	_, err := h.importWith(t.Context(), image.Reference, bare(t))
	refused(t, err, fault.Unavailable, "gave up after 3 tries", "in trouble or overloaded")
	if n := len(*waits); n < 6 || n > 8 {
		t.Errorf("waits %v", *waits)
	}
}

// TestRetryAfterOfTheManifest: who opens an image learns for how long the registry wants to be left
// alone. After 429 the image library waits itself; its next request is delayed at random.
func TestRetryAfterOfTheManifest(t *testing.T) {
	repo, commit := tiny(t)
	h, image := pushed(t, repo, commit, registry.Options{Bearer: true})
	for on, what := range map[string]string{"/manifests/": "the manifest", "/blobs/": "the config"} {
		h.registry.Spoil(registry.Rule{On: on, Fault: registry.Status(503, "Retry-After", "9")})
		if _, err := h.lookUp(t.Context(), image.Reference); retry.AskedBy(err) != 9*time.Second || fault.KindOf(err) != fault.Unavailable {
			t.Errorf("%s: %s, %v", what, retry.AskedBy(err), err)
		}
	}
	h.registry.Spoil(registry.Rule{On: "/manifests/", Fault: registry.Status(503)})
	if _, err := h.lookUp(t.Context(), image.Reference); err == nil || retry.AskedBy(err) != 0 {
		t.Errorf("it does not say: %s, %v", retry.AskedBy(err), err)
	}
	waits := h.recordWaits(retry.Policy{Tries: 2})
	h.registry.Spoil(registry.Rule{On: "/manifests/", Times: 2, Fault: registry.Status(429, "Retry-After", "1")})
	if _, err := h.lookUp(t.Context(), image.Reference); err != nil {
		t.Fatal(err)
	}
	if n := len(*waits); n != 2 || slices.Max(*waits) < time.Millisecond || slices.Max(*waits) > 5*time.Second {
		t.Errorf("after the library's own waits: %v", *waits)
	}
}

// TestCutWaits: a broken download is resumed after a wait that doubles, and not by the image library with its wait,
// which is the same on all machines.
func TestCutWaits(t *testing.T) {
	repo, commit := tiny(t)
	h, image := pushed(t, repo, commit, registry.Options{})
	layer := image.Layers[1]
	waits := h.recordWaits(retry.Policy{First: 10 * time.Second, Cap: time.Minute, Tries: 4})
	h.registry.Spoil(registry.Rule{On: layer.Digest, Times: 2, Fault: registry.CutAt(layer.Size / 2)})
	requests := h.registry.Requests()
	h.imports(image, commit)
	if n := count(h.registry.RequestLog()[requests:], layer.Digest); n != 3 || len(*waits) != 2 || (*waits)[0] < 5*time.Second || (*waits)[1] < 10*time.Second {
		t.Errorf("%d requests, waits %v", n, *waits)
	}
}

// TestRetryAfterOfTheRest: a registry that is asked for the rest of a layer is left alone for as long as
// it requests, and at most a minute.
func TestRetryAfterOfTheRest(t *testing.T) {
	repo, commit := tiny(t)
	h, image := pushed(t, repo, commit, registry.Options{Bearer: true})
	layer := image.Layers[1]
	h.puller.Patience = 2 * time.Second // a busy host is not a silent registry
	var waits []time.Duration
	h.puller.Retry = retry.Policy{
		First: time.Second, Cap: 3 * time.Second, Tries: 5,
		Sleep: func(_ context.Context, d time.Duration) error { waits = append(waits, d); return nil },
	}
	h.registry.Spoil(
		registry.Rule{On: layer.Digest, Times: 1, Fault: registry.StallAt(layer.Size / 2)},
		registry.Rule{On: layer.Digest, Range: true, Times: 1, Fault: registry.Status(http.StatusTooManyRequests, "Retry-After", "7")},
		registry.Rule{On: layer.Digest, Range: true, Times: 1, Fault: registry.Status(503, "Retry-After", "99999999999")},
	)
	before := h.registry.BytesServed()
	h.imports(image, commit)
	if len(waits) != 3 || waits[1] < 7*time.Second || waits[1] > 11*time.Second || waits[2] < time.Minute || waits[2] > 90*time.Second {
		t.Errorf("waits %v", waits)
	}
	if sent := h.registry.BytesServed() - before; sent > image.Bytes+tail+2000 {
		t.Errorf("%d bytes sent for an image of %d", sent, image.Bytes)
	}
}

// TestBackoff: the waiting time doubles up to a limit.
func TestBackoff(t *testing.T) {
	repo, commit := tiny(t)
	h, image := pushed(t, repo, commit, registry.Options{})
	h.registry.Spoil(registry.Rule{On: image.Layers[1].Digest, Fault: registry.Status(502)})
	var waits []time.Duration
	h.puller.Retry = retry.Policy{
		First: time.Second, Cap: 3 * time.Second, Tries: 5,
		Sleep: func(_ context.Context, d time.Duration) error { waits = append(waits, d); return nil },
	}
	_, err := h.importWith(t.Context(), image.Reference, bare(t))
	refused(t, err, fault.Unavailable, "layer 2 of 2, "+image.Layers[1].Digest+": gave up after 5 tries", "in trouble or overloaded")
	want := []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second}
	if len(waits) != len(want) {
		t.Fatalf("waits %v, want %v", waits, want)
	}
	for i, w := range want {
		if waits[i] > w || waits[i] < w/2 {
			t.Errorf("waits %v, want at least half of %v", waits, want)
		}
	}
	if notes := strings.Join(h.notes, "\n"); !strings.Contains(notes, "502") || !strings.Contains(notes, "going on at byte 0 of") {
		t.Errorf("notes:\n%s", notes)
	}
}

// TestDamageEndsWaiting: a damaged layer is reported at once, even if the rest of it arrives
// slowly.
func TestDamageEndsWaiting(t *testing.T) {
	repo, commit := archive(t)
	h, image := pushed(t, repo, commit, registry.Options{})
	h.registry.Spoil(registry.Rule{On: image.Layers[1].Digest, Fault: both(registry.StallAt(1<<20), registry.FlipAt(1))})
	h.puller.Patience = 10 * time.Minute
	start := time.Now()
	target := bare(t)
	_, err := h.importWith(t.Context(), image.Reference, target)
	refused(t, err, fault.BadInput, "", "the image is damaged")
	if took := time.Since(start); took >= h.puller.Patience {
		t.Errorf("it took %s", took)
	}
	checkUntouched(t, target)
}

// TestCancelledWhileWaiting: a cancelled import ends at once.
func TestCancelledWhileWaiting(t *testing.T) {
	repo, commit := tiny(t)
	h, image := pushed(t, repo, commit, registry.Options{})
	h.registry.Spoil(registry.Rule{On: image.Layers[1].Digest, Fault: registry.Status(502)})
	ctx, cancel := context.WithCancel(t.Context())
	h.puller.Retry = retry.Policy{
		First: time.Hour, Cap: time.Hour, Tries: 5,
		Sleep: func(ctx context.Context, d time.Duration) error { cancel(); return retry.Sleep(ctx, d) },
	}
	target := bare(t)
	_, err := h.importWith(ctx, image.Reference, target)
	refused(t, err, fault.Unavailable, "canceled", "")
	checkUntouched(t, target)
}
