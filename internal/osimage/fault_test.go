package osimage_test

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/ostreetree"
	"machine-pivot/test/worlds/registry"
)

// outcome is the expected result of an import, and its expected load on the registry.
type outcome struct {
	kind       fault.Kind
	text, hint string

	requests int   // for the large layer
	waste    int64 // maximum number of bytes of layers that are sent repeatedly; -1 is any number
}

// whole is the outcome of an import that succeeds.
func whole(requests int, waste int64) outcome { return outcome{requests: requests, waste: waste} }

// transient, denied and damaged are outcomes of imports that fail.
func transient(text string, requests int) outcome {
	return outcome{fault.Unavailable, text, "", requests, -1}
}
func denied(text string, requests int) outcome {
	return outcome{fault.Refused, text, "", requests, -1}
}

// lost is the outcome if the registry does not have a part of the image.
func lost(text string, requests int) outcome {
	return outcome{fault.Refused, text, "does not have all parts of the image: push it again", requests, -1}
}
func damaged(text string, requests int) outcome {
	return outcome{fault.BadInput, text, "the image is damaged; push it again", requests, -1}
}

// always and once apply a fault to every download of a layer, or to the first one.
func always(f registry.Fault) []registry.Rule { return []registry.Rule{{Fault: f}} }
func once(f registry.Fault) []registry.Rule   { return []registry.Rule{{Times: 1, Fault: f}} }

// then cuts the first download and applies a fault to all later ones.
func then(f registry.Fault) []registry.Rule {
	return append(once(registry.CutAt(5000)), registry.Rule{Fault: f})
}

// parts cuts the first download and applies a fault to range requests for the rest.
func parts(f registry.Fault) []registry.Rule {
	return append(once(registry.CutAt(5000)), registry.Rule{Range: true, Fault: f})
}

// on applies a fault to requests for something other than the large layer.
func on(path string, times int, f registry.Fault) []registry.Rule {
	return []registry.Rule{{On: path, Times: times, Fault: f}}
}

// tail is how many bytes are requested twice when a download is resumed.
const tail = 64

// spoilt is an image with faults in its largest layer.
type spoilt struct {
	v1.Image
	large string // digest of that layer
	size  int64
	whole func(t *testing.T, result osimage.Result, repo string) // checks a successful import
	none  func(t *testing.T, repo string)                        // checks a failed import
}

// find finds the image's largest layer.
func (s *spoilt) find(t *testing.T) {
	t.Helper()
	layers, err := s.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, layer := range layers {
		digest, err := layer.Digest()
		size, err2 := layer.Size()
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		if size > s.size {
			s.large, s.size = digest.String(), size
		}
	}
}

// TestFaults imports images in spite of each fault of a registry. The real ostree checks the
// result: the commit must be complete, or must not exist.
func TestFaults(t *testing.T) {
	w := newWorld(t, ostreetree.Contents{Big: true})
	old := &spoilt{
		Image: legacy(t, w.archive, w.commit, oscontainer.WithLayers(1)),
		whole: func(t *testing.T, result osimage.Result, repo string) { checkImported(t, repo, w.commit, result) },
		none:  checkUntouched,
	}
	native := &spoilt{
		Image: w.encapsulated(spread(4)),
		whole: func(t *testing.T, _ osimage.Result, repo string) {
			if _, err := ostreetree.Compare(repo, w.bare, w.commit); err != nil {
				t.Error(err)
			}
			noPartial(t, repo)
		},
	}
	native.none = func(t *testing.T, repo string) { onlyLayers(t, repo, native.large) }
	derived := derivedToSpoil(t)
	ownEnvironment(t)
	for name, img := range map[string]*spoilt{"legacy": old, "native": native, "derived": derived} {
		if testing.Short() && img != derived { // it covers the other formats
			continue
		}
		img.find(t)
		t.Run(name, func(t *testing.T) { testFaults(t, img) })
	}
}

// derivedToSpoil returns an image with a derived layer between others as its largest.
func derivedToSpoil(t *testing.T) *spoilt {
	t.Helper()
	o := newOSTree(t)
	content := make([]byte, 4<<20)
	rand.NewChaCha8([32]byte{}).Read(content) // incompressible, so that offsets in the layer are offsets in the content
	large := regular("usr/bin/large", string(content))
	s := &spoilt{Image: o.asBase().derive([][]entry{{regular("usr/share/one", "1")}, {large}, {gone("usr/share/one")}})}
	o.write("usr/bin/large", string(content))
	want := list(t, o.repo, o.commit())
	s.whole = func(t *testing.T, result osimage.Result, repo string) {
		if got := list(t, repo, result.Commit); got != want {
			t.Errorf("the merged tree differs:\n%s", difference(want, got))
		}
		noPartial(t, repo)
	}
	s.none = func(t *testing.T, repo string) { onlyLayers(t, repo, s.large) }
	return s
}

func testFaults(t *testing.T, img *spoilt) {
	size := img.size
	busy := registry.Status(http.StatusTooManyRequests, "Retry-After", "0")
	page := registry.WebPage()
	for name, c := range map[string]struct {
		rules []registry.Rule // for the large layer, unless On is set
		want  outcome
	}{
		"cut once":               {once(registry.CutAt(5000)), whole(2, tail)},
		"cut before the first":   {once(registry.CutAt(0)), whole(2, 0)},
		"cut after the last":     {once(registry.CutAt(size)), whole(1, 0)},
		"cut for ever":           {always(registry.CutAt(5000)), transient("gave up after 3 tries: unexpected EOF", 3)},
		"stall once":             {once(registry.StallAt(5000)), whole(2, tail)},
		"stall for ever":         {always(registry.StallAt(5000)), transient("gave up after 3 tries: the registry is silent: no data for 2s", 3)},
		"stall before the first": {once(registry.StallAt(0)), whole(2, 0)},
		"drip once":              {once(registry.Drip(5 * time.Millisecond)), whole(2, tail)},
		"drip for ever":          {always(registry.Drip(5 * time.Millisecond)), transient("silent: less than 1024 bytes per second for 2s", 3)},
		"503 once":               {once(registry.Status(503)), whole(2, 200)},
		"503 for ever":           {always(registry.Status(503)), transient("gave up after 3 tries: fetching the blob: 503 Service Unavailable", 3)},
		"500 once cut":           {then(registry.Status(500)), transient("500", 3)},
		"busy once":              {once(busy), whole(2, 200)},
		"busy for ever":          {always(busy), transient("gave up after 3 tries: fetching the blob: 429 Too Many Requests", 3)},
		"401":                    {always(registry.Status(401)), denied("fault of the test registry", 6)},
		"403":                    {always(registry.Status(403)), denied("fault of the test registry", 2)},
		"404":                    {always(registry.Status(404)), lost("fault of the test registry", 2)},
		"404 once cut":           {then(registry.Status(404)), lost("fault of the test registry", 4)},
		"ends early once":        {once(registry.EndAt(5000)), whole(2, tail)},
		"ends early for ever":    {always(registry.EndAt(5000)), damaged("it is truncated: it ended after 5000 of ", 3)},
		"shorter once":           {once(registry.Length(-10)), whole(2, tail)},
		"shorter for ever":       {always(registry.Length(-10)), damaged("it is truncated: it ended after ", 3)},
		"longer":                 {always(registry.Length(10)), whole(1, 0)},
		"trailing data":          {always(registry.Trail("x")), damaged("data follows after the ", 1)},
		"flipped byte":           {once(registry.FlipAt(2_000_000)), damaged("", 1)},
		"flipped last byte":      {once(registry.FlipAt(size - 1)), damaged("", 1)},
		"web page once":          {once(page), whole(2, 200)},
		"web page for ever":      {always(page), transient("gave up after 2 tries: the registry sent a web page", 2)},
		"web page once cut":      {then(page), transient("sent a web page", 4)},
		"redirects for ever":     {always(registry.Redirect("")), transient("more than 10 times", 20)},
		"redirect to a file":     {always(registry.Redirect("file:///etc/passwd")), denied("unsupported protocol scheme", 1)},
		"redirect to a data URL": {always(registry.Redirect("data:,x")), denied("unsupported protocol scheme", 1)},
		"redirect once cut":      {then(registry.Redirect("ftp://127.0.0.1/x")), denied("unsupported protocol scheme", 3)},
		"parts are refused":      {parts(registry.Status(416)), whole(3, 5000+400)},
		"parts are not known":    {parts(registry.NoRanges()), whole(3, -1)},
		"parts are others":       {parts(registry.OtherRange("bytes=300-900")), whole(3, -1)},
		"parts are short":        {parts(registry.EndAt(9000)), whole(4, 9000+tail)},
		"parts are damaged":      {parts(registry.FlipAt(9000)), damaged("", 2)},
		"the whole is another":   {append(once(registry.CutAt(5000)), registry.Rule{Range: true, Fault: registry.Status(416)}, registry.Rule{Fault: registry.FlipAt(100)}), transient("other bytes than before", 4)},
		"manifest 404":           {on("/manifests/", 0, registry.Status(404)), lost("manifest", 0)},
		"manifest 503":           {on("/manifests/", 0, registry.Status(503)), transient("503", 0)},
		"manifest is a web page": {on("/manifests/", 0, page), outcome{fault.BadInput, "digest", "", 0, -1}},
		"manifest in a file":     {on("/manifests/", 0, registry.Redirect("file:///etc/passwd")), denied("unsupported protocol scheme", 0)},
		"manifest is cut":        {on("/manifests/", 0, registry.CutAt(100)), transient("unexpected EOF", 0)},
		"config 404":             {on("/blobs/", 1, registry.Status(404)), lost("config", 0)},
		"config 502":             {on("/blobs/", 1, registry.Status(502)), transient("502", 0)},
		"config is flipped":      {on("/blobs/", 1, registry.FlipAt(100)), outcome{fault.BadInput, "config", "", 0, -1}},
		"token 500":              {on("/token", 0, registry.Status(500)), transient("500", 0)},
		"token 401":              {on("/token", 0, registry.Status(401)), denied("", 0)},
		"token is a web page":    {on("/token", 0, page), denied("", 0)},
	} {
		t.Run(name, func(t *testing.T) {
			sample.Short(t, 60)
			t.Parallel()
			h := startHost(t, registry.Options{Bearer: true})
			ref, _ := h.push("x", img.Image)
			image, err := h.lookUp(t.Context(), ref)
			if err != nil {
				t.Fatal(err)
			}
			for i := range c.rules {
				if c.rules[i].On == "" {
					c.rules[i].On = img.large
				}
			}
			h.registry.Spoil(c.rules...)
			if strings.Contains(name, "stall") || strings.Contains(name, "drip") {
				h.puller.Patience = 2 * time.Second // a busy host is not a silent registry
			}
			h.faulty(t, img, image, c.want)
			if strings.HasPrefix(name, "stall") && !strings.Contains(h.logged(), "which has sent nothing for 500ms; it is given until ") {
				t.Errorf("of a layer that does not come it is said %s", h.logged())
			}
		})
	}
}

// faulty imports an image and compares the result with the expected outcome.
func (h *host) faulty(t *testing.T, img *spoilt, image osimage.Image, want outcome) {
	t.Helper()
	last := h.watchProgress(t)
	before, log := h.registry.BytesServed(), h.registry.Requests()
	target := bare(t)
	result, err := h.importWith(t.Context(), image.Reference, target)
	if want.kind == fault.Internal {
		if err != nil {
			t.Fatal(err)
		}
		img.whole(t, result, target)
		if !last.Done || last.FetchedBytes != last.TotalBytes || last.FetchedBytes != result.Bytes.Fetched {
			t.Errorf("last progress %+v, result %+v", *last, result)
		}
	} else {
		refused(t, err, want.kind, want.text, want.hint)
		img.none(t, target)
		if fault.HintOf(err) == "" {
			t.Errorf("no hint: %v", err)
		}
		if last.Done {
			t.Errorf("last progress %+v", *last)
		}
	}
	requests := 0
	for _, line := range h.registry.RequestLog()[log:] {
		if strings.HasPrefix(line, "GET ") && strings.HasSuffix(line, img.large) {
			requests++
		}
	}
	if requests != want.requests {
		t.Errorf("%d requests for the layer, want %d", requests, want.requests)
	}
	const config = 2000 // at most
	if sent := h.registry.BytesServed() - before; want.waste >= 0 && sent > image.Bytes+want.waste+config {
		t.Errorf("%d bytes sent for an image of %d, want at most %d more", sent, image.Bytes, want.waste)
	}
	h.checkSecrets(t, err)
}

// watchProgress checks that progress never decreases or exceeds the total. It returns the
// latest progress.
func (h *host) watchProgress(t *testing.T) *osimage.Progress {
	var last osimage.Progress
	h.report = func(p osimage.Progress) {
		if p.FetchedBytes < last.FetchedBytes || p.TotalBytes < last.TotalBytes || p.FetchedBytes > p.TotalBytes || last.Done {
			t.Errorf("progress %+v after %+v", p, last)
		}
		last = p
	}
	return &last
}

// checkSecrets checks that errors and notes contain no passwords and tokens.
func (h *host) checkSecrets(t *testing.T, err error) {
	t.Helper()
	told := h.logged()
	if err != nil {
		told += "\n" + err.Error()
	}
	if strings.Contains(told, "token-of") || strings.Contains(told, "pull-secret") {
		t.Errorf("a secret is told: %s", told)
	}
}

// noPartial checks that no commit is marked partial, and that no commit is incomplete.
func noPartial(t *testing.T, repo string) {
	t.Helper()
	ostreeTool(t, "fsck", "--repo="+repo)
	marks, err := filepath.Glob(filepath.Join(repo, "state/*"))
	if err != nil || len(marks) != 0 {
		t.Errorf("%q in state/ after a failed import, %v", marks, err)
	}
}
