package osimage_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"machine-pivot/internal/osimage"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/registry"
)

// update is an OS, and an update of it in which a twentieth of the files has changed, in all directories.
type update struct {
	before, after *osTree
}

// newUpdate returns an update of an OS of some 5 MB.
func newUpdate(t *testing.T) update {
	t.Helper()
	u := update{before: newOSTree(t)}
	for n := range 240 {
		u.before.write(fileOf(n), content(1, n))
	}
	u.before.write("usr/lib/modules-1/large", strings.Repeat(content(1, 1000), 120))
	u.after = u.before.copy()
	for n := 0; n < 240; n += 20 {
		u.after.write(fileOf(n), content(2, n))
	}
	u.after.remove("usr/lib/modules-1")
	u.after.write("usr/lib/modules-2/large", strings.Repeat(content(1, 1000), 120)) // in another directory
	return u
}

func fileOf(n int) string { return fmt.Sprintf("usr/share/files/%d/%d", n/20, n) }

// content returns content that can be compressed to three quarters.
func content(version, n int) string {
	random := rand.New(rand.NewPCG(uint64(version), uint64(n)))
	b := make([]byte, 4000+random.IntN(16000))
	for i := range b {
		b[i] = byte(random.IntN(64))
	}
	return string(b)
}

// images returns the images of both versions, for each format.
func (u update) images(t *testing.T) map[string][2]v1.Image {
	t.Helper()
	compression := oscontainer.WithCompression(oscontainer.ZstdChunked)
	native := func(o *osTree) v1.Image { return o.encapsulated(compression, oscontainer.WithChunks(5)) }
	return map[string][2]v1.Image{
		"encapsulated": {native(u.before), native(u.after)},
		"plain":        {plainImage(t, u.before, 5, compression), plainImage(t, u.after, 5, compression)},
		"derived":      {native(u.before), u.derived(t, compression)},
	}
}

// derived returns an image of the new version: the former one with the changed files in two derived
// layers, and most others again.
func (u update) derived(t *testing.T, compression oscontainer.Option) v1.Image {
	t.Helper()
	entries, err := oscontainer.FromTree(u.after.dir)
	u.after.must(err)
	layers := oscontainer.Divide(entries, 2, func(name string) (int, bool) { return len(name) % 2, true })
	return u.before.encapsulated(append(layers, compression, oscontainer.WithChunks(5))...)
}

// whole imports an image without any local content, and returns the commit and how many bytes the
// registry has sent.
func (h *host) whole(ref imageref.Reference) (commit string, sent int64) {
	h.t.Helper()
	before := h.registry.BytesServed()
	result, err := h.importRef(ref, bare(h.t))
	if err != nil {
		h.t.Fatal(err)
	}
	return result.Commit, h.registry.BytesServed() - before
}

// updates imports an image, and checks the result. It returns how many bytes the registry has sent for it.
func (h *host) updates(repo string, ref imageref.Reference, want string) int64 {
	h.t.Helper()
	var last osimage.Progress
	h.report = func(p osimage.Progress) { last = p }
	defer func() { h.report = nil }()
	before := h.registry.BytesServed()
	result, err := h.importRef(ref, repo)
	if err != nil {
		h.t.Fatal(err)
	}
	if result.Commit != want {
		h.t.Errorf("commit %s, want %s", result.Commit, want)
	}
	if last.FetchedBytes != last.TotalBytes || !last.Done || result.Bytes.Fetched != last.FetchedBytes {
		h.t.Errorf("last progress %+v, %+v", last, result)
	}
	ostreeTool(h.t, "fsck", "--repo="+repo)
	return h.registry.BytesServed() - before
}

// partsWorld is a host with images of an update, in all formats, in its registry. Its tests run one after the other.
type partsWorld struct {
	*host
	update
	cases map[string]*partsCase
}

// partsCase is one format.
type partsCase struct {
	*partsWorld
	format  string
	second  v1.Image
	ref     imageref.Reference // of the second image
	want    string             // its commit
	size    int64              // how many bytes the registry sends for it
	updated string             // a repository that has the first image
}

func newPartsWorld(t *testing.T) *partsWorld {
	t.Helper()
	w := &partsWorld{host: newHost(t, registry.Options{Bearer: true}), update: newUpdate(t), cases: map[string]*partsCase{}}
	w.stores = true
	for format, images := range w.images(t) {
		c := &partsCase{partsWorld: w, format: format, second: images[1], updated: bare(t)}
		first, _ := w.push(format+"-first", images[0])
		if _, err := w.importRef(first, c.updated); err != nil {
			t.Fatal(err)
		}
		c.ref, _ = w.push(format+"-second", images[1])
		c.want, c.size = w.whole(c.ref)
		w.cases[format] = c
	}
	return w
}

// run runs a test for some formats, of which a short run has one in n. The registry is spoiled by rules.
func (w *partsWorld) run(t *testing.T, name string, n uint32, formats []string, rules []registry.Rule, test func(c *partsCase)) {
	t.Helper()
	for _, format := range formats {
		t.Run(name+", "+format, func(t *testing.T) {
			sample.Short(t, n)
			outer := w.t
			defer func() { w.t = outer }()
			w.t, w.notes, w.puller.Patience = t, nil, 0
			w.registry.Spoil(rules...)
			test(w.cases[format])
		})
	}
}

// repo returns a copy of the repository that has the first image.
func (c *partsCase) repo() string {
	c.t.Helper()
	dir := filepath.Join(c.t.TempDir(), "repo")
	if out, err := exec.Command("cp", "-a", c.updated, dir).CombinedOutput(); err != nil {
		c.t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// fetches updates a repository, and checks that the registry sends at most a share of the image.
func (c *partsCase) fetches(repo string, share float64) {
	c.t.Helper()
	sent := c.updates(repo, c.ref, c.want)
	c.t.Logf("%d of %d bytes", sent, c.size)
	if float64(sent) > share*float64(c.size) {
		c.t.Errorf("the registry has sent %d bytes for an image of %d", sent, c.size)
	}
	if text := c.logged(); strings.Contains(text, "fetched whole") {
		c.t.Errorf("log:\n%s", text)
	}
}

// TestParts (P83): an update of images in all formats fetches only the content that the host does not
// have, and gives the same commit as without it, whatever happens meanwhile.
func TestParts(t *testing.T) {
	w := newPartsWorld(t)
	formats := []string{"encapsulated", "plain", "derived"}
	w.run(t, "update", 1, formats, nil, func(c *partsCase) { c.fetches(c.repo(), 0.12) })
	for _, status := range []int{http.StatusOK, http.StatusPartialContent, http.StatusRequestedRangeNotSatisfiable} { // of a request for several
		rules := []registry.Rule{{On: "/blobs/", Range: true, Fault: registry.OnePart(status)}}
		w.run(t, fmt.Sprintf("one part, %d", status), 3, []string{"plain"}, rules, func(c *partsCase) { c.fetches(c.repo(), 0.12) })
	}
	// The host has the former version as a deployment, from another program, and never imported an image.
	w.run(t, "first boot", 3, formats, nil, func(c *partsCase) {
		repo, deployed := bare(c.t), c.before.commit()
		ostreeTool(c.t, "pull-local", "--repo="+repo, c.before.repo, deployed)
		ostreeTool(c.t, "refs", "--repo="+repo, "--create=ostree/0/1/0", deployed)
		c.fetches(repo, 0.12)
	})
	w.interruptions(t, formats)
	w.doubts(t)
	w.wrongAnswers(t)
	w.run(t, "damaged object", 3, formats, nil, (*partsCase).damagedObject)
}

// interruptions breaks connections, and ends imports.
func (w *partsWorld) interruptions(t *testing.T, formats []string) {
	t.Helper()
	on := largestLayer(t, w.cases["plain"].second)
	for name, rules := range map[string][]registry.Rule{
		"cut":           {{On: on, Range: true, Times: 2, Fault: registry.CutAfter(3000)}, {On: on, Range: true, Skip: 1, Times: 2, Fault: registry.CutAfter(5000)}},
		"token expires": {{On: on, Range: true, Times: 1, Fault: both(w.registry.ExpiringTokens(), registry.CutAfter(3000))}},
		"failure":       {{On: on, Range: true, Times: 2, Fault: registry.Status(http.StatusServiceUnavailable)}},
		"silence":       {{On: on, Range: true, Times: 1, Fault: registry.StallAt(4000)}},
	} {
		w.run(t, name, 4, []string{"plain"}, rules, func(c *partsCase) {
			if name == "silence" {
				c.puller.Patience = time.Second
			}
			c.fetches(c.repo(), 0.15)
			if text := c.logged(); !strings.Contains(text, "layer "+on) {
				t.Errorf("log:\n%s", text)
			}
		})
	}
	w.run(t, "ended", 3, formats, nil, (*partsCase).ended)
}

// ended ends an import at each of its first requests for a part. What is left is of use for a later one.
func (c *partsCase) ended() {
	repo, ended := c.repo(), 0
	for skip := 0; skip < 6; skip += 2 {
		ctx, cancel := context.WithCancel(c.t.Context())
		c.registry.Spoil(registry.Rule{On: "/blobs/", Range: true, Skip: skip, Fault: calling(cancel)})
		if _, err := c.importWith(ctx, c.ref, repo); err != nil {
			ended++
		}
		cancel()
		ostreeTool(c.t, "fsck", "--repo="+repo)
	}
	if ended < 2 {
		c.t.Errorf("ended %d times", ended)
	}
	c.registry.Spoil()
	c.fetches(repo, 0.15)
}

// doubts: whatever is wrong with the parts of a layer, the layer is fetched whole, and the log says
// so once.
func (w *partsWorld) doubts(t *testing.T) {
	t.Helper()
	on := largestLayer(t, w.cases["plain"].second)
	parts := func(f registry.Fault) []registry.Rule { return []registry.Rule{{On: on, Range: true, Fault: f}} }
	all := "layers are fetched whole, also where the machine has parts of them"
	one := "layer " + on + " is fetched whole, although parts are on this machine"
	for name, c := range map[string]struct {
		rules []registry.Rule
		log   string
	}{
		"no ranges":          {[]registry.Rule{{On: "/blobs/", Range: true, Fault: registry.NoRanges()}}, all},
		"web page":           {[]registry.Rule{{On: "/blobs/", Range: true, Fault: registry.WebPage()}}, all},
		"another part":       {parts(registry.OtherRange("bytes=0-99")), one},
		"forbidden":          {parts(registry.Status(http.StatusForbidden)), one},
		"unavailable":        {parts(registry.Status(http.StatusServiceUnavailable)), one},
		"cut always":         {parts(registry.CutAfter(0)), one},
		"damaged table":      {parts(registry.FlipAt(1000)), one},
		"damaged part":       {[]registry.Rule{{On: on, Range: true, Skip: 1, Fault: registry.FlipAt(1000)}}, one},
		"no more one by one": {[]registry.Rule{{On: on, Range: true, Skip: 1, Fault: registry.OnePart(http.StatusOK)}}, all},
	} {
		w.run(t, name, 9, []string{"plain"}, c.rules, func(p *partsCase) {
			p.updates(p.repo(), p.ref, p.want)
			if text := p.logged(); strings.Count(text, c.log) != 1 {
				p.t.Errorf("%q is not in the log once:\n%s", c.log, text)
			}
		})
	}
}

// wrongAnswers: an answer that is none to the question is not asked for again, and little of it is read.
func (w *partsWorld) wrongAnswers(t *testing.T) {
	t.Helper()
	on := largestLayer(t, w.cases["plain"].second)
	const part = "--parts\r\nContent-Range: bytes 0-9/1000\r\n\r\n0123456789\r\n"
	for name, fault := range map[string]registry.Fault{
		"endless preamble":   registry.Several(strings.Repeat(strings.Repeat("x", 1000)+"\r\n", 64), true),
		"endless parts":      registry.Several(part, true),
		"endless header":     registry.Several("--parts\r\n"+strings.Repeat("X: y\r\n", 10000), true),
		"one long line":      registry.Several(strings.Repeat("x", 10000), true),
		"no part":            registry.Several("--parts--\r\n", false),
		"nothing":            registry.Several("", false),
		"no header":          registry.Several("--parts\r\nno header\r\n\r\n", false),
		"another part in it": registry.Several(part+"--parts--\r\n", false),
	} {
		rules := []registry.Rule{{On: on, Range: true, Fault: fault}}
		w.run(t, name, 2, []string{"plain"}, rules, func(c *partsCase) {
			since := c.registry.Requests()
			before := c.registry.BytesServed()
			c.updates(c.repo(), c.ref, c.want)
			requests := 0
			for _, line := range c.registry.RequestLog()[since:] {
				if strings.HasSuffix(line, on) {
					requests++
				}
			}
			if sent := c.registry.BytesServed() - before; requests != 2 || sent > c.size+20<<20 { // the kernel's buffers
				c.t.Errorf("%d requests for the layer, %d bytes for an image of %d", requests, sent, c.size)
			}
			if text := c.logged(); strings.Count(text, "layer "+on+" is fetched whole, although parts are on this machine") != 1 {
				c.t.Errorf("log:\n%s", text)
			}
		})
	}
}

// largestLayer returns the digest of the largest layer of an image.
func largestLayer(t *testing.T, img v1.Image) (digest string) {
	t.Helper()
	manifest, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	size := int64(0)
	for _, l := range manifest.Layers {
		if l.Size > size {
			digest, size = l.Digest.String(), l.Size
		}
	}
	return digest
}

// damagedObject: content of an object of the repository that does not have its content any more is in no other
// object, and the object is replaced.
func (c *partsCase) damagedObject() {
	repo := c.repo()
	damaged := damage(c.t, repo, content(1, 1)) // of a file that the update does not change
	result, err := c.importRef(c.ref, repo)
	if err != nil || result.Commit != c.want {
		c.t.Fatalf("%+v, %v, want %s", result, err, c.want)
	}
	// Content that is looked for by path or digest is read when it is found, so this one was fetched.
	if strings.Contains(c.logged(), "fetched whole") {
		c.t.Errorf("log:\n%s", c.logged())
	}
	if !strings.Contains(c.logged(), "damaged objects (1), such as "+strings.Join(strings.Split(damaged, "/")[len(strings.Split(damaged, "/"))-2:], "")) {
		c.t.Errorf("log:\n%s", c.logged())
	}
	ostreeTool(c.t, "fsck", "--repo="+repo)
}

// damage changes the object with some content, but not its size, and returns its path.
func damage(t *testing.T, repo, content string) string {
	t.Helper()
	objects, err := filepath.Glob(filepath.Join(repo, "objects/*/*.file"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range objects {
		info, err := os.Lstat(name)
		if err != nil || !info.Mode().IsRegular() || info.Size() != int64(len(content)) {
			continue
		}
		if data, err := os.ReadFile(name); err == nil && string(data) == content {
			if err := os.WriteFile(name, []byte("x"+content[1:]), 0o644); err != nil {
				t.Fatal(err)
			}
			return name
		}
	}
	t.Fatal("no object with this content")
	return ""
}

// calling calls a function before a response.
func calling(f func()) registry.Fault {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			f()
			next.ServeHTTP(w, req)
		})
	}
}
