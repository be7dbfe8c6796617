package osimage_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/osimage"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/test/oscontainer"
	"machine-pivot/test/ostreetree"
	"machine-pivot/test/registry"
)

// spread spreads a commit's objects over n chunks evenly, so that no two are equal.
func spread(n int) oscontainer.Option {
	return oscontainer.WithChunking(n, func(checksum string, _ []string) int {
		digit, err := strconv.ParseUint(checksum[:4], 16, 64)
		if err != nil {
			panic(err) // checksums are hexadecimal
		}
		return 1 + int(digit)%n
	})
}

// resolve resolves what must be there.
func (h *host) resolve(ref imageref.Reference) osimage.Image {
	h.t.Helper()
	image, err := h.lookUp(h.t.Context(), ref)
	if err != nil {
		h.t.Fatal(err)
	}
	return image
}

// fetched are the layers of an image that were asked for since a number of
// requests, as positions.
func (h *host) fetched(image osimage.Image, since int) []int { return asked(h.registry, image, since) }

// asked is fetched for any registry.
func asked(r *registry.Registry, image osimage.Image, since int) (layers []int) {
	for n, layer := range image.Layers {
		if slices.ContainsFunc(r.RequestLog()[since:], func(request string) bool {
			return strings.HasPrefix(request, "GET ") && strings.Contains(request, layer.Digest)
		}) {
			layers = append(layers, n)
		}
	}
	return layers
}

// without are the layers of an image that a repository has no ref of.
func without(t *testing.T, image osimage.Image, repo string) []int {
	t.Helper()
	refs := allRefs(t, repo)
	var layers []int
	for n, layer := range image.Layers {
		if _, found := refs[layerRef(layer)]; !found {
			layers = append(layers, n)
		}
	}
	return layers
}

func layerRef(layer osimage.Layer) string {
	return "ostree/container/blob/" + strings.Replace(layer.Digest, ":", "_3A_", 1)
}

// sizes adds up layers, in bytes.
func sizes(image osimage.Image, layers []int) int64 {
	sum := int64(0)
	for _, n := range layers {
		sum += image.Layers[n].Size
	}
	return sum
}

// written is when each object's file was last changed, by its inode and status
// time: an object that is written again has others.
func written(t *testing.T, repo string) map[string]string {
	t.Helper()
	names, err := ostreetree.Objects(repo)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, name := range names {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(repo, "objects", name), &st); err != nil {
			t.Fatal(err)
		}
		all[name] = fmt.Sprint(st.Ino, st.Ctim)
	}
	return all
}

// checkKept wants all objects of before as they were.
func checkKept(t *testing.T, repo string, before map[string]string) {
	t.Helper()
	now := written(t, repo)
	for name, when := range before {
		if now[name] != when {
			t.Errorf("object %s was written again", name)
		}
	}
}

// TestPresentLayersAreNotFetched imports an image, the same again, and one that
// shares layers with it.
func TestPresentLayersAreNotFetched(t *testing.T) {
	w := newWorld(t, ostreetree.Contents{Big: true})
	h := newHost(t, registry.Options{})
	chunked := oscontainer.WithChunks(6)
	ref, _ := h.push("one", w.encapsulated(chunked))
	repo := bare(t)
	first, err := h.importRef(ref, repo)
	if err != nil {
		t.Fatal(err)
	}
	one := h.resolve(ref)
	if all := sizes(one, []int{0, 1, 2, 3, 4, 5, 6}); first.Bytes.Fetched != all || len(one.Layers) != 7 {
		t.Errorf("%d bytes were fetched for %d layers of %d", first.Bytes.Fetched, len(one.Layers), all)
	}

	before, since := written(t, repo), h.registry.Requests()
	again, err := h.importRef(ref, repo)
	if err != nil || again.Commit != first.Commit || again.Bytes.Fetched != 0 || again.Bytes.Written != 0 || again.Objects.New != 0 {
		t.Errorf("%+v, %v", again, err)
	}
	if layers := h.fetched(one, since); len(layers) != 0 {
		t.Errorf("layers %v were fetched again", layers)
	}
	checkKept(t, repo, before)

	// One file more, in one directory.
	if err := os.WriteFile(filepath.Join(w.tree, "usr/bin/more"), []byte("more"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.recommit()
	ref, _ = h.push("two", w.encapsulated(chunked))
	two := h.resolve(ref)
	var changed []int
	for n, layer := range two.Layers {
		if !slices.Contains(one.Layers, layer) {
			changed = append(changed, n)
		}
	}
	if len(changed) != 2 || changed[0] != 0 {
		t.Fatalf("the images differ in layers %v", changed)
	}
	since = h.registry.Requests()
	second, err := h.importRef(ref, repo)
	if err != nil {
		t.Fatal(err)
	}
	if layers := h.fetched(two, since); !slices.Equal(layers, changed) || second.Bytes.Fetched != sizes(two, changed) {
		t.Errorf("layers %v with %d bytes were fetched, want %v with %d", layers, second.Bytes.Fetched, changed, sizes(two, changed))
	}
	checkKept(t, repo, before)
	if got, want := second.Objects.New, len(written(t, repo))-len(before); got != want {
		t.Errorf("%d objects are said to be new, %d are", got, want)
	}
	if _, err := ostreetree.Compare(repo, w.bare, w.commit); err != nil {
		t.Error(err)
	}
}

// TestLostObjectIsFetched: a ref to a layer is not believed if an object is missing.
func TestLostObjectIsFetched(t *testing.T) {
	w := newWorld(t, ostreetree.Contents{})
	h := newHost(t, registry.Options{})
	ref, _ := h.push("x", w.encapsulated(spread(6)))
	repo := bare(t)
	first, err := h.importRef(ref, repo)
	if err != nil {
		t.Fatal(err)
	}
	image := h.resolve(ref)
	listing := ostreeTool(t, "ls", "--repo="+repo, "-R", allRefs(t, repo)[layerRef(image.Layers[3])])
	_, object, _ := strings.Cut(listing, " /") // of the first file: the directory itself is "/"
	object = object[strings.Index(object, " /")+2:][:64]
	if err := os.Remove(filepath.Join(repo, "objects", object[:2], object[2:]+".file")); err != nil {
		t.Fatal(err)
	}
	since := h.registry.Requests()
	again, err := h.importRef(ref, repo)
	if err != nil || again.Commit != first.Commit || again.Objects.New != 1 {
		t.Errorf("%+v, %v", again, err)
	}
	if layers := h.fetched(image, since); !slices.Equal(layers, []int{0, 3}) {
		t.Errorf("layers %v were fetched, want the first and the fourth", layers)
	}
	if _, err := ostreetree.Compare(repo, w.bare, w.commit); err != nil {
		t.Error(err)
	}
}
