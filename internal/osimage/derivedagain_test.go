package osimage_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/registry"
)

// builtKind is a kind of image that a container build makes of an OS.
type builtKind struct {
	name  string
	build func(opts ...oscontainer.Option) v1.Image
	kept  int // how many layers are kept when the download of one stalls
}

// builtKinds returns kinds of images with nine layers: a commit or the whole tree, and the
// builtLayers.
func builtKinds(t *testing.T, o *osTree) []builtKind {
	t.Helper()
	base := o.encapsulated()
	return []builtKind{
		{"derived", func(opts ...oscontainer.Option) v1.Image {
			img, err := oscontainer.Derive(base, append(opts, oscontainer.WithWorkDir(t.TempDir()))...)
			o.must(err)
			return img
		}, 7}, // without the commit, which is kept only when all other layers are complete
		{"plain", func(opts ...oscontainer.Option) v1.Image { return plainImage(t, o, 1, opts...) }, 8},
	}
}

// builtLayers returns eight layers, of which the last differs in each version.
func builtLayers(version string) (opts []oscontainer.Option) {
	for n := range 7 {
		opts = append(opts, oscontainer.WithDerived(regular(fmt.Sprintf("usr/share/layer-%d", n), fmt.Sprint(n))))
	}
	return append(opts, oscontainer.WithDerived(regular("usr/bin/version", version)))
}

// builtTree returns the tree of an OS with builtLayers.
func builtTree(o *osTree, version string) *osTree {
	o.t.Helper()
	want := o.copy()
	for n := range 7 {
		want.write(fmt.Sprintf("usr/share/layer-%d", n), fmt.Sprint(n))
	}
	want.write("usr/bin/version", version)
	return want
}

// TestInterruptedDerived: complete derived layers of an interrupted import are not fetched
// again by the next import, in the same boot or after a power cut. Until then the repository
// is consistent and has refs of layers, but not of the image.
func TestInterruptedDerived(t *testing.T) {
	o := newOSTree(t)
	for _, kind := range builtKinds(t, o) {
		for _, cut := range []bool{false, true} {
			t.Run(kind.name+map[bool]string{false: ", interrupted", true: ", power cut"}[cut], func(t *testing.T) {
				sample.Short(t, 4)
				o.t = t
				h := newHost(t, registry.Options{})
				h.givePolicy(contexts)
				ref, _ := h.push("x", kind.build(builtLayers("1")...))
				image, repo := h.resolve(ref), bare(t)
				h.interrupt(image, repo, kind.kept)
				missing := without(t, image, repo)
				if len(missing) == 0 || len(missing) > len(image.Layers)-kind.kept {
					t.Fatalf("layers %v have no ref", missing)
				}
				for ref := range allRefs(t, repo) {
					if !strings.HasPrefix(ref, "ostree/container/blob/") {
						t.Errorf("ref %s", ref)
					}
				}
				ostreeTool(t, "fsck", "--repo="+repo)
				expectStaging(t, repo, cut)

				result := h.resumes(image, repo, missing)
				ostreeTool(t, "fsck", "--repo="+repo)
				sameTree(t, repo, result.Commit, builtTree(o, "1"))
			})
		}
	}
}

// TestNextVersion (P48): for an image's next version only the changed layer is fetched. The tree and its labels are the
// same as if all layers had been fetched.
func TestNextVersion(t *testing.T) {
	o := newOSTree(t)
	for _, kind := range builtKinds(t, o) {
		t.Run(kind.name, func(t *testing.T) {
			o.t = t
			h := newHost(t, registry.Options{})
			repo := bare(t)
			ref, _ := h.push("one", kind.build(builtLayers("1")...))
			if _, err := h.importRef(ref, repo); err != nil {
				t.Fatal(err)
			}
			ref, _ = h.push("two", kind.build(builtLayers("2")...))
			image, since := h.resolve(ref), h.registry.Requests()
			result, err := h.importRef(ref, repo)
			if err != nil {
				t.Fatal(err)
			}
			if layers := h.fetched(image, since); !slices.Equal(layers, []int{8}) {
				t.Errorf("layers %v were fetched, want the last one", layers)
			}
			ostreeTool(t, "fsck", "--repo="+repo)
			sameTree(t, repo, result.Commit, builtTree(o, "2"))
		})
	}
}
