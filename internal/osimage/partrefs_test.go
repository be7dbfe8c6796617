package osimage_test

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"machine-pivot/internal/osimage"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/ostree"
	"machine-pivot/test/worlds/registry"
)

// TestPartsUnderAnotherDigest: an image that names blobs of another image, and has parts of other
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

// disguise pushes an image with the digests of the second image's layers in place of its own. It returns the rules by
// which the registry serves its own for them.
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

// TestRefsOfParts: layers that were read by parts get the refs by which other programs find them, and
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
		if left := partsOf(c.t, path); len(left) > 0 {
			c.t.Errorf("only we know %q", left)
		}
		// A later import takes them, and nothing stays once others have removed the refs that they know.
		if sent := c.updates(path, c.ref, c.want); sent > 20_000 {
			c.t.Errorf("%d bytes were fetched again", sent)
		}
		for ref := range allRefs(c.t, path) {
			if strings.HasPrefix(ref, "ostree/container/") || strings.HasPrefix(ref, osimage.KeepAliveRef("")) {
				c.before.must(repo.DeleteRef(ref))
			}
		}
		ostreeTool(c.t, "prune", "--repo="+path, "--refs-only", "--depth=0")
		if there, err := repo.Has(ostree.ObjectName{Checksum: commit, Type: ostree.Commit}); there || err != nil {
			c.t.Errorf("the image is there: %v", err)
		}
		files, err := filepath.Glob(filepath.Join(path, "objects/*/*.file"))
		c.before.must(err)
		if len(files) > 0 {
			c.t.Errorf("%d files are left", len(files))
		}
	})
}

func partsOf(t *testing.T, repo string) []string {
	t.Helper()
	return slices.DeleteFunc(refsOf(t, repo), func(ref string) bool { return !strings.HasPrefix(ref, "pivot-parts/") })
}

// TestPartsOfNobody: when another image is deployed, refs of parts are removed if no image to be deployed needs them,
// such as an interrupted import's. While an import runs, they stay.
func TestPartsOfNobody(t *testing.T) {
	w := newPartsWorld(t)
	w.run(t, "left", 1, []string{"plain"}, nil, func(c *partsCase) {
		path := c.repo()
		c.fetches(path, 0.12)
		repo, parts := openRepo(c.t, path), partsOf(c.t, path)
		if removed, err := osimage.RemoveUndeployed(repo); removed || err != nil || !slices.Equal(partsOf(c.t, path), parts) || len(parts) == 0 {
			c.t.Errorf("an image that is to be deployed: removed %v, %v", removed, err)
		}
		c.before.must(repo.DeleteRef(osimage.KeepAliveRef(c.want))) // as before the end of an import
		running, err := repo.BeginImport(c.t.Context())
		c.before.must(err)
		if removed, err := osimage.RemoveUndeployed(repo); removed || err != nil || !slices.Equal(partsOf(c.t, path), parts) {
			c.t.Errorf("while an import runs: removed %v, %v", removed, err)
		}
		c.before.must(running.Discard())
		if removed, err := osimage.RemoveUndeployed(repo); !removed || err != nil || len(partsOf(c.t, path)) > 0 {
			c.t.Errorf("removed %v, %v; left are %q", removed, err, partsOf(c.t, path))
		}
	})
}
