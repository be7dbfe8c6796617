package osimage_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/osimage"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/ostreetree"
	"machine-pivot/test/worlds/registry"
)

// spread distributes a commit's objects evenly over n chunks, so that no two chunks are equal.
func spread(n int) oscontainer.Option {
	return oscontainer.WithChunking(n, func(checksum string, _ []string) int {
		digit, err := strconv.ParseUint(checksum[:4], 16, 64)
		if err != nil {
			panic(err) // checksums are hexadecimal
		}
		return 1 + int(digit)%n
	})
}

// resolve resolves a reference, which must succeed.
func (h *host) resolve(ref imageref.Reference) osimage.Image {
	h.t.Helper()
	image, err := h.lookUp(h.t.Context(), ref)
	if err != nil {
		h.t.Fatal(err)
	}
	return image
}

// fetched returns the indexes of an image's layers that were requested since a number of
// requests.
func (h *host) fetched(image osimage.Image, since int) []int { return asked(h.registry, image, since) }

// asked is fetched for a given registry.
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

// without returns the indexes of an image's layers for which a repository has no ref.
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

// sizes returns the total size of some layers, in bytes.
func sizes(image osimage.Image, layers []int) int64 {
	sum := int64(0)
	for _, n := range layers {
		sum += image.Layers[n].Size
	}
	return sum
}

// written returns the inode and change time of each object's file, which differ after the
// object is written again.
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

// checkKept checks that all objects of before are unchanged.
func checkKept(t *testing.T, repo string, before map[string]string) {
	t.Helper()
	now := written(t, repo)
	for name, when := range before {
		if now[name] != when {
			t.Errorf("object %s was written again", name)
		}
	}
}

// TestPresentLayersAreNotFetched imports an image, the same image again, and another image that
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

	// Add a file in one directory.
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

// TestLostObjectIsFetched: a layer is fetched in spite of its ref if an object is missing, or cannot be right.
func TestLostObjectIsFetched(t *testing.T) {
	changed := func(path string) error {
		return errors.Join(os.Remove(path), os.WriteFile(path, []byte("something else"), 0o644))
	}
	emptied := func(path string) error { // as after a power cut
		return errors.Join(changed(path), os.Truncate(path, 0), os.Chtimes(path, time.Unix(0, 0), time.Unix(0, 0)))
	}
	for name, lose := range map[string]func(path string) error{"missing": os.Remove, "emptied": emptied, "changed": changed} {
		t.Run(name, func(t *testing.T) { lostObjectIsFetched(t, lose) })
	}
}

func lostObjectIsFetched(t *testing.T, lose func(path string) error) {
	t.Helper()
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
	if err := lose(filepath.Join(repo, "objects", object[:2], object[2:]+".file")); err != nil {
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
