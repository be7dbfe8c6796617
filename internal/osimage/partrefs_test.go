package osimage_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"machine-pivot/internal/osimage"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/ostree"
	"machine-pivot/test/worlds/registry"
)

// TestPartsUnderAnotherDigest (D242): an image that names blobs of another image, and has parts of other
// contents served for them, does not give these contents to that image.
func TestPartsUnderAnotherDigest(t *testing.T) {
	w := newPartsWorld(t)
	evil := w.update
	evil.after = w.after.copy()
	for n := 1; n < 240; n += 10 { // in each layer
		evil.after.write(fileOf(n), content(3, n))
	}
	images := evil.images(t)
	w.run(t, "another digest", 1, []string{"encapsulated", "plain", "derived"}, nil, func(c *partsCase) {
		img := images[c.format][1]
		c.push(c.format+"-evil-blobs", img)
		ref, rules := c.disguise(img)
		repo := c.repo()
		c.registry.Spoil(rules...)
		if _, err := c.importRef(ref, repo); err != nil {
			c.t.Fatal(err)
		}
		if text := c.logged(); strings.Contains(text, "fetched whole") {
			c.t.Fatalf("the attack was not tried; log:\n%s", text)
		}
		c.registry.Spoil()
		c.updates(repo, c.ref, c.want)
	})
}

// disguise pushes an image that has the digests of the second image's layers in place of its own, and returns
// the rules by which the registry serves its own for them.
func (c *partsCase) disguise(img v1.Image) (ref imageref.Reference, rules []registry.Rule) {
	c.t.Helper()
	own, err := img.Manifest()
	c.before.must(err)
	of, err := c.second.Manifest()
	c.before.must(err)
	manifest := own.DeepCopy()
	for n, l := range own.Layers {
		if n >= len(of.Layers) || l.Digest == of.Layers[n].Digest || l.Size < 64<<10 { // small layers are fetched whole
			continue
		}
		manifest.Layers[n].Digest = of.Layers[n].Digest
		rules = append(rules, registry.Rule{On: of.Layers[n].Digest.String(), Fault: renamed(of.Layers[n].Digest, l.Digest)})
	}
	if len(rules) == 0 {
		c.t.Fatal("the images have the same layers")
	}
	raw, err := json.Marshal(manifest)
	c.before.must(err)
	_, err = c.registry.PushManifest(c.t.Context(), "test/os", c.format+"-evil", own.MediaType, raw)
	c.before.must(err)
	return c.host.ref(c.format + "-evil"), rules
}

// renamed serves another blob.
func renamed(from, to v1.Hash) registry.Fault {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			req.URL.Path = strings.Replace(req.URL.Path, from.String(), to.String(), 1)
			next.ServeHTTP(w, req)
		})
	}
}

// TestRefsOfParts (D242): layers that were read by parts get the refs by which other programs find them, and
// the image gets its name, when the image is about to be deployed.
func TestRefsOfParts(t *testing.T) {
	w := newPartsWorld(t)
	w.run(t, "refs", 1, []string{"encapsulated", "plain", "derived"}, nil, func(c *partsCase) {
		whole, path := bare(c.t), c.repo()
		if _, err := c.importRef(c.ref, whole); err != nil {
			c.t.Fatal(err)
		}
		c.fetches(path, 0.12)
		repo := openRepo(c.t, path)
		commit, err := ostree.ParseChecksum(c.want)
		c.before.must(err)
		for ref := range allRefs(c.t, path) {
			if strings.HasPrefix(ref, "ostree/container/image/") && strings.Contains(ref, "second") {
				c.t.Error("other programs find the image, but not its layers")
			}
		}
		if kept, err := osimage.Kept(c.t.Context(), repo, commit, c.ref); kept || err != nil {
			c.t.Errorf("before: kept %v, %v", kept, err)
		}
		c.before.must(osimage.Keep(c.t.Context(), repo, commit, c.ref))
		got, want := allRefs(c.t, path), allRefs(c.t, whole)
		for ref, to := range want {
			if got[ref] != to {
				c.t.Errorf("ref %s leads to %q, want %s", ref, got[ref], to)
			}
		}
		// A later import takes them, and the refs go with the image.
		if sent := c.updates(path, c.ref, c.want); sent > 20_000 {
			c.t.Errorf("%d bytes were fetched again", sent)
		}
		c.before.must(osimage.Remove(repo, commit))
		left := slices.DeleteFunc(slices.Collect(maps.Keys(allRefs(c.t, path))), func(ref string) bool { return !strings.HasPrefix(ref, "pivot-parts/") })
		if len(left) > 0 {
			c.t.Errorf("left are %q", left)
		}
	})
}
