package osimage_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage"
	"machine-pivot/test/ostreetree"
	"machine-pivot/test/registry"
)

// TestInterruptedImportKeepsLayers stops an import after some layers: they are
// whole and not fetched again, with what else was begun or without it, as after a
// power cut.
func TestInterruptedImportKeepsLayers(t *testing.T) {
	w := newWorld(t, ostreetree.Contents{Big: true})
	const chunks = 9
	img := w.encapsulated(spread(chunks))
	for _, cut := range []bool{false, true} {
		t.Run(map[bool]string{false: "interrupted", true: "power cut"}[cut], func(t *testing.T) {
			h := newHost(t, registry.Options{})
			ref, _ := h.push("x", img)
			image, repo := h.resolve(ref), bare(t)
			h.interrupt(image, repo, chunks-1)

			missing := without(t, image, repo)
			if len(missing) > 2 || missing[0] != 0 {
				t.Fatalf("layers %v have no ref", missing)
			}
			for ref, set := range allRefs(t, repo) {
				if !strings.HasPrefix(ref, "ostree/container/blob/") {
					t.Errorf("ref %s to %s", ref, set)
				}
			}
			ostreeTool(t, "fsck", "--repo="+repo)
			expectStaging(t, repo, cut)

			h.goesOn(image, repo, missing)
			if _, err := ostreetree.Compare(repo, w.bare, w.commit); err != nil {
				t.Error(err)
			}
			if left, err := filepath.Glob(filepath.Join(repo, "tmp/pivot-*")); err != nil || len(left) != 0 {
				t.Errorf("%v, %v is left", left, err)
			}
		})
	}
}

// expectStaging wants the staging directory of an interrupted import, and removes it
// if the power is cut: it was never synced.
func expectStaging(t *testing.T, repo string, cut bool) {
	t.Helper()
	staging, err := filepath.Glob(filepath.Join(repo, "tmp/pivot-import-*"))
	if err != nil || len(staging) != 1 {
		t.Fatalf("staging directories %v, %v", staging, err)
	}
	if cut {
		if err := os.RemoveAll(staging[0]); err != nil {
			t.Fatal(err)
		}
	}
}

// interrupt imports an image, one layer of which never comes, and gives up when
// others have their refs.
func (h *host) interrupt(image osimage.Image, repo string, others int) {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	defer cancel()
	var once sync.Once
	h.report = func(osimage.Progress) { // at the first byte of a layer, when others are not asked for yet
		once.Do(func() {
			h.registry.StallBlobs(1)
			go func() {
				for countFiles(filepath.Join(repo, "refs/heads/ostree/container/blob")) < others && ctx.Err() == nil {
					time.Sleep(time.Millisecond)
				}
				cancel()
			}()
		})
	}
	_, err := h.importWith(ctx, image.Reference, repo)
	refused(h.t, err, fault.Unavailable, "canceled", "")
	h.report = nil
}

// goesOn imports an image of which only some layers are missing: no other is fetched, and
// no object written again.
func (h *host) goesOn(image osimage.Image, repo string, missing []int) osimage.Result {
	h.t.Helper()
	before, since := written(h.t, repo), h.registry.Requests()
	result, err := h.importRef(image.Reference, repo)
	if err != nil {
		h.t.Fatal(err)
	}
	if layers := h.fetched(image, since); !slices.Equal(layers, missing) || result.Bytes.Fetched != sizes(image, missing) {
		h.t.Errorf("layers %v with %d bytes were fetched, want %v with %d", layers, result.Bytes.Fetched, missing, sizes(image, missing))
	}
	checkKept(h.t, repo, before)
	return result
}

func countFiles(dir string) int {
	n := 0
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error { // not there yet: none
		if err == nil && d.Type().IsRegular() {
			n++
		}
		return nil
	})
	return n
}

// TestDamagedLayerLeavesOthers: a layer that is not what it should be fails the
// import at once, but those that were whole before stay, for the image that
// replaces the damaged one.
func TestDamagedLayerLeavesOthers(t *testing.T) {
	w := newWorld(t, ostreetree.Contents{})
	h := newHost(t, registry.Options{})
	ref, _ := h.push("x", w.encapsulated(spread(9)))
	image, repo := h.resolve(ref), bare(t)
	last := image.Layers[len(image.Layers)-1]
	flip := func() {
		if err := h.registry.FlipByte(last.Digest, 300); err != nil {
			t.Fatal(err)
		}
	}
	flip()
	_, err := h.importRef(ref, repo)
	refused(t, err, fault.BadInput, last.Digest, "damaged")
	missing := without(t, image, repo)
	if len(missing) > 5 || missing[0] != 0 || missing[len(missing)-1] != len(image.Layers)-1 {
		t.Errorf("layers %v have no ref", missing) // four at a time: the last began when others had ended
	}
	ostreeTool(t, "fsck", "--repo="+repo)

	flip() // the same bit
	since := h.registry.Requests()
	if _, err := h.importRef(ref, repo); err != nil {
		t.Fatal(err)
	}
	if layers := h.fetched(image, since); !slices.Equal(layers, missing) {
		t.Errorf("layers %v were fetched, want %v", layers, missing)
	}
	if _, err := ostreetree.Compare(repo, w.bare, w.commit); err != nil {
		t.Error(err)
	}
}
