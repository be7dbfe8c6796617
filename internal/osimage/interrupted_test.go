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
	"machine-pivot/test/worlds/ostreetree"
	"machine-pivot/test/worlds/registry"
)

// TestInterruptedImportKeepsLayers stops an import after some layers. These are complete and
// are not fetched again, both with the staging directory of the interrupted import and, as
// after a power cut, without it.
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

			h.resumes(image, repo, missing)
			if _, err := ostreetree.Compare(repo, w.bare, w.commit); err != nil {
				t.Error(err)
			}
			if left, err := filepath.Glob(filepath.Join(repo, "tmp/pivot-*")); err != nil || len(left) != 0 {
				t.Errorf("%v, %v is left", left, err)
			}
		})
	}
}

// expectStaging checks that there is a staging directory of an interrupted import, and removes
// it for a power cut: it was never synced.
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

// interrupt imports an image while the download of one layer stalls, and cancels the import
// when the given number of other layers have their refs.
func (h *host) interrupt(image osimage.Image, repo string, others int) {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	defer cancel()
	var once sync.Once
	h.report = func(osimage.Progress) { // at the first byte of a layer, before others are requested
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

// resumes imports an image of which only some layers are missing. It checks that no other layer
// is fetched, and that no object is written again.
func (h *host) resumes(image osimage.Image, repo string, missing []int) osimage.Result {
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
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error { // a missing directory counts as empty
		if err == nil && d.Type().IsRegular() {
			n++
		}
		return nil
	})
	return n
}

// TestDamagedLayerLeavesOthers: a damaged layer ends the import at once, but layers that were
// complete by then are kept for the image that replaces the damaged one.
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
		t.Errorf("layers %v have no ref", missing) // four at a time: the last began after others were complete
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
