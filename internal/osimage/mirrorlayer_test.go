package osimage_test

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/osimage"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/osimage/layer"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/ostreetree"
	"machine-pivot/test/worlds/registry"
)

// mirroredOS returns a host with a mirror of its registry, and an ostree-native image with
// many layers that is in both.
func mirroredOS(t *testing.T) (*mirrored, *world, osimage.Image) {
	t.Helper()
	w, m := newWorld(t, ostreetree.Contents{}), newMirrored(t)
	m.tag = "os"
	img := w.encapsulated(spread(9))
	m.push(m.tag, img)
	pushTo(t, m.mirror, m.tag, img)
	return m, w, m.resolve(m.ref(m.tag))
}

// TestBadLayerAtAMirror: a layer that is incomplete or damaged at the mirror is fetched from the
// registry; the other layers are fetched from the mirror unless it has failed altogether.
func TestBadLayerAtAMirror(t *testing.T) {
	for name, c := range map[string]struct {
		rule   registry.Rule // for the mirror; On defaults to the last layer
		note   string
		others bool // other layers come from the registry too
	}{
		"wrong digest":       {registry.Rule{Fault: registry.FlipAt(300)}, "does not serve it completely, trying ORIGIN/test/os: ", false},
		"truncated for good": {registry.Rule{Fault: registry.EndAt(300)}, "it is truncated: it ended after 300 of ", false},
		"trailing data":      {registry.Rule{Fault: registry.Trail("x")}, "data follows after the ", false},
		"lost":               {registry.Rule{Fault: registry.Status(404)}, "fault of the test registry", false},
		"denied":             {registry.Rule{Fault: registry.Status(403)}, "fault of the test registry", false},
		"in trouble":         {registry.Rule{On: "/blobs/", Skip: 1, Fault: registry.Status(503)}, "gave up after 3 tries: ", true}, // skips the config
		"web pages":          {registry.Rule{On: "/blobs/", Skip: 1, Fault: registry.WebPage()}, "gave up after 2 tries: the registry sent a web page", true},
		"cut for ever":       {registry.Rule{On: "/blobs/", Skip: 1, Fault: registry.CutAt(100)}, "gave up after 3 tries: ", true},
	} {
		t.Run(name, func(t *testing.T) {
			sample.Short(t, 6)
			m, w, image := mirroredOS(t)
			last := len(image.Layers) - 1
			if c.rule.On == "" {
				c.rule.On = image.Layers[last].Digest
			}
			m.mirror.Spoil(c.rule)
			progress := m.watchProgress(t)
			since, repo := m.registry.Requests(), bare(t)
			atMirror := m.mirror.Requests()
			result, err := m.importRef(m.ref(m.tag), repo)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := ostreetree.Compare(repo, w.bare, w.commit); err != nil {
				t.Error(err)
			}
			if !progress.Done || progress.FetchedBytes != progress.TotalBytes || progress.FetchedBytes != result.Bytes.Fetched {
				t.Errorf("last progress %+v, result %+v", *progress, result)
			}
			if notes := strings.Join(m.notes, "\n"); !strings.Contains(notes, m.names(c.note)) {
				t.Errorf("no note has %q:\n%s", m.names(c.note), notes)
			}
			if layers := m.fetched(image, since); !slices.Contains(layers, last) || (len(layers) > 1) != c.others {
				t.Errorf("layers %v came from the registry", layers)
			}
			// After a transient failure the mirror is not used for layers that are started later than the first eight.
			if layers := asked(m.mirror, image, atMirror); c.others && len(layers) > 8 {
				t.Errorf("the mirror was asked for layers %v", layers)
			}
		})
	}
}

// TestBadLayerEverywhere: the error names each endpoint with its failure, and its kind tells
// whether a retry can help.
func TestBadLayerEverywhere(t *testing.T) {
	for name, c := range map[string]struct {
		mirror, origin registry.Fault
		kind           fault.Kind
		texts          []string
		hint           string
	}{
		"damaged in both": {
			registry.FlipAt(300), registry.EndAt(300), fault.BadInput,
			[]string{"tried 2 of the 2 places it may come from:\n", "  MIRROR/test/os: ", "  ORIGIN/test/os: it is truncated: it ended after 300 of "}, "the image is damaged",
		},
		"damaged, and in trouble": {
			registry.EndAt(300), registry.Status(502), fault.Unavailable,
			[]string{"  MIRROR/test/os: it is truncated", "  ORIGIN/test/os: gave up after 3 tries: ", "502"}, "ORIGIN is in trouble",
		},
		"lost in both": {
			registry.Status(404), registry.Status(404), fault.Refused,
			[]string{"  MIRROR/test/os: ", "  ORIGIN/test/os: "}, "does not have all parts of the image: push it again",
		},
	} {
		t.Run(name, func(t *testing.T) {
			sample.Short(t, 2)
			m, _, image := mirroredOS(t)
			last := image.Layers[len(image.Layers)-1].Digest
			m.mirror.Spoil(registry.Rule{On: last, Fault: c.mirror})
			m.registry.Spoil(registry.Rule{On: last, Fault: c.origin})
			repo := bare(t)
			_, err := m.importRef(m.ref(m.tag), repo)
			for _, text := range append(c.texts, "layer 10 of 10, "+last+": ") {
				refused(t, err, c.kind, m.names(text), m.names(c.hint))
			}
			onlyLayers(t, repo, last)
		})
	}
}

// TestNextEndpointRefuses: a layer is read from another endpoint only if registries.conf and
// the signature policy permit reading the image there.
func TestNextEndpointRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(m *mirrored, image osimage.Image)
		kind    fault.Kind
		text    string
	}{
		"blocked":  {func(m *mirrored, _ osimage.Image) { m.configure("blocked = true", "") }, fault.BadInput, "  ORIGIN/test/os: registry ORIGIN/test is blocked in registries.conf"},
		"down":     {func(m *mirrored, _ osimage.Image) { _ = m.registry.SetDown(true) }, fault.Unavailable, "connection refused"},
		"no login": {func(m *mirrored, _ osimage.Image) { m.remove("/var/lib/kubelet/config.json") }, fault.BadInput, "unauthorized"},
		"lacks the image": {func(m *mirrored, _ osimage.Image) {
			m.registry.Spoil(registry.Rule{On: "/manifests/", Fault: registry.Status(404)})
		}, fault.BadInput, "  ORIGIN/test/os: reading manifest"},
		"has no signature": {func(m *mirrored, image osimage.Image) {
			lookaside := t.TempDir()
			key, written := newGPGSigner(t, lookaside), m.registry.Host()+"/test/os"
			m.policy(written, key.requirement(t))
			m.lookFor(m.mirror.Host(), "file://"+lookaside)
			good := claim{identity: written + ":" + m.tag, digest: image.Digest}
			key.store(t, m.mirror, image.Digest, good, key.sign(t, good))
		}, fault.Refused, "  ORIGIN/test/os: the signature policy rejects it by "},
	} {
		t.Run(name, func(t *testing.T) {
			sample.Short(t, 8)
			m, _, image := mirroredOS(t)
			last := image.Layers[len(image.Layers)-1].Digest
			m.mirror.Spoil(registry.Rule{On: last, Fault: registry.EndAt(300)})
			c.prepare(m, image)
			_, err := m.importRef(m.ref(m.tag), bare(t))
			for _, text := range []string{m.names("  MIRROR/test/os: it is truncated"), m.names(c.text)} {
				refused(t, err, c.kind, text, "")
			}
		})
	}
}

// TestNotTheMirrorsFault: what is wrong with this machine, and an image beyond a limit, is an error of the first
// endpoint that serves it. The others are not tried, nor does one that does not answer make the error transient.
func TestNotTheMirrorsFault(t *testing.T) {
	m := newMirrored(t)
	put := func(tag string, img v1.Image) imageref.Reference {
		_, digest := m.push(tag, img)
		pushTo(t, m.mirror, tag, img)
		return m.ref(tag).Pinned(digest)
	}
	label := put("label", newOSTree(t).encapsulated())
	parts := plain(t)
	manifest := map[string]string{}
	for n := range 1 << 16 {
		manifest[strconv.Itoa(n)] = ""
	}
	many := put("many", mutate.Annotations(parts, manifest).(v1.Image))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	open := func(ref imageref.Reference) *osimage.Opened {
		t.Helper()
		opened, err := m.puller.Open(t.Context(), ref)
		must(err)
		t.Cleanup(func() { must(opened.Close()) })
		return opened
	}
	must(m.registry.SetDown(true))

	repo := openRepo(t, bare(t))
	repo.CheckLabels(func(string) error { return hostfiles.ErrUnknownLabel })
	_, err := open(label).Import(t.Context(), repo, nil)
	refused(t, err, fault.Refused, "tried 1 of the 2 places", hostfiles.UnknownLabelHint)

	limit := fault.New(fault.BadInput, "too many files")
	err = open(label).Extract(t.Context(), "sysroot", func(int) layer.FileSink { return fullSink{limit} }, nil)
	refused(t, err, fault.BadInput, "too many files", "")

	_, err = m.puller.Open(t.Context(), many)
	refused(t, err, fault.BadInput, "its manifest has more than 131072 parts", "build the image with less in it")
}

// fullSink is a FileSink that takes nothing.
type fullSink struct{ error }

func (s fullSink) CreateFile(string) (io.WriteCloser, error) { return nil, s.error }
func (s fullSink) Remove(string) error                       { return s.error }

// onlyLayers checks that a failed import of an ostree-native image left only complete layers,
// and not the bad one.
func onlyLayers(t *testing.T, repo, bad string) {
	t.Helper()
	for ref := range allRefs(t, repo) {
		if !strings.HasPrefix(ref, "ostree/container/blob/") || ref == layerRef(osimage.Layer{Digest: bad}) {
			t.Errorf("ref %s after a failed import", ref)
		}
	}
	noPartial(t, repo)
}

// TestEncoding: a blob is asked for as it is stored, because its digest is that of the stored bytes.
func TestEncoding(t *testing.T) {
	w, h := newWorld(t, ostreetree.Contents{}), newHost(t, registry.Options{})
	ref, _ := h.push("os", w.encapsulated(spread(3)))
	image, err := h.lookUp(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan string, 100)
	h.registry.Spoil(registry.Rule{On: image.Layers[1].Digest, Fault: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			asked <- req.Header.Get("Accept-Encoding")
			next.ServeHTTP(w, req)
		})
	}})
	if _, err := h.importRef(ref, bare(t)); err != nil {
		t.Fatal(err)
	}
	if got := <-asked; got != "identity" {
		t.Errorf("Accept-Encoding: %q", got)
	}
}
