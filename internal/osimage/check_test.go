package osimage_test

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/imageref"
	"machine-pivot/internal/printable"
	"machine-pivot/test/worlds/ostreetree"
	"machine-pivot/test/worlds/registry"
)

// check calls Check for an image, and checks that it does not change the repository.
func (h *host) check(ref imageref.Reference, repo string) error {
	h.t.Helper()
	image, err := h.puller.Open(h.t.Context(), ref)
	if err != nil {
		h.t.Fatal(err)
	}
	defer image.Close()
	before := snapshot(h.t, repo)
	_, err = image.Check(h.t.Context(), openRepo(h.t, repo))
	if now := snapshot(h.t, repo); now != before {
		h.t.Errorf("the check has written:\n%s\n%s", before, now)
	}
	return err
}

// snapshot lists the files of a repository with their times.
func snapshot(t *testing.T, repo string) (all string) {
	t.Helper()
	err := filepath.WalkDir(repo, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			all += fmt.Sprintln(path, info.Size(), info.ModTime())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// fill leaves no free space for a repository.
func fill(t *testing.T, repo string) {
	t.Helper()
	ostreeTool(t, "config", "--repo="+repo, "set", "core.min-free-space-size", "900000TB")
}

// TestCheckRoom: Check counts only the space for missing layers.
func TestCheckRoom(t *testing.T) {
	w := newWorld(t, ostreetree.Contents{Big: true})
	for _, format := range []string{"legacy", "native"} {
		t.Run(format, func(t *testing.T) {
			img := legacy(t, w.archive, w.commit)
			if format == "native" {
				img = w.encapsulated(spread(6))
			}
			h := newHost(t, registry.Options{})
			ref, _ := h.push("x", img)
			image, full, whole := h.resolve(ref), bare(t), bare(t)
			fill(t, full)
			refused(t, h.check(ref, full), fault.CannotWrite,
				"room for 0 B, but the image needs more than its compressed size, "+printable.Size(image.Bytes), "free space")
			_, err := h.importRef(ref, full) // fails the same way
			refused(t, err, fault.CannotWrite, "its compressed size, "+printable.Size(image.Bytes), "free space")

			if err := h.check(ref, whole); err != nil {
				t.Error(err)
			}
			if _, err := h.importRef(ref, whole); err != nil {
				t.Fatal(err)
			}
			fill(t, whole)
			if err := h.check(ref, whole); err != nil {
				t.Errorf("all of it is there: %v", err)
			}
			if format == "native" {
				ostreeTool(t, "refs", "--repo="+whole, "--delete", layerRef(image.Layers[2]))
				need := sizes(image, []int{0, 2}) // the first layer counts as complete only if all others are
				refused(t, h.check(ref, whole), fault.CannotWrite, "its compressed size, "+printable.Size(need), "")
			}
		})
	}
}

// TestCheckAfterInterruption: the layers of an interrupted import use disk space, but need not
// be fetched again.
func TestCheckAfterInterruption(t *testing.T) {
	repo, tree := filepath.Join(t.TempDir(), "archive"), t.TempDir()
	ostreeTool(t, "init", "--repo="+repo, "--mode=archive")
	random := rand.NewChaCha8([32]byte{})
	for n := range 64 {
		content := make([]byte, 16<<10)
		_, _ = random.Read(content[:8<<10]) // never fails; the rest is zeros, so that objects are larger than layers
		if err := os.WriteFile(filepath.Join(tree, fmt.Sprint(n)), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	commit := ostreeTool(t, "commit", "--repo="+repo, "--branch=os", tree)
	h, image := pushed(t, repo, commit, registry.Options{})
	last := image.Layers[len(image.Layers)-1]
	h.registry.Spoil(registry.Rule{On: last.Digest, Fault: registry.CutAt(last.Size - 100)})
	target := bare(t)
	_, err := h.importRef(image.Reference, target)
	refused(t, err, fault.Unavailable, "gave up", "")
	fill(t, target)
	if err := h.check(image.Reference, target); err != nil {
		t.Error(err)
	}
}
