package ostree_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"machine-pivot/internal/ostree"
)

// TestInterruptedImportGoesOn ends an import before Finish: the next import reuses complete
// objects and writes incomplete ones again.
func TestInterruptedImportGoesOn(t *testing.T) {
	s, r := newSource(t), newRepo(t)
	objects := s.objects()
	im := begin(t, r)
	check(t, add(t, im, objects))
	first := im.Stats()
	check(t, im.Close())

	// One file as a killed process leaves it: incomplete.
	left, err := filepath.Glob(filepath.Join(r.Path(), "tmp/pivot-import-*/*/*.file"))
	check(t, err)
	spoiled := ""
	for _, path := range left {
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
			spoiled = path
		}
	}
	check(t, os.WriteFile(spoiled, []byte("begun"), 0o600))

	im = begin(t, r)
	check(t, add(t, im, objects))
	second := im.Stats()
	check(t, im.Finish(t.Context(), ostree.Root{Commit: s.commit, Refs: []string{"os"}}))
	check(t, im.Discard())
	if second.ObjectsNew != first.ObjectsNew || second.BytesWritten >= first.BytesWritten/10 {
		t.Errorf("first %+v, then %+v: want the same objects, little written again", first, second)
	}
	run(t, "ostree", "fsck", "--repo="+r.Path())
	nothingLeft(t, r)
}

// TestEarlierBootIsNotTrusted: after a power cut, files that were never synced can have any
// content.
func TestEarlierBootIsNotTrusted(t *testing.T) {
	s, r := newSource(t), newRepo(t)
	im := begin(t, r)
	check(t, add(t, im, s.objects()))
	check(t, im.Close())
	ours, err := filepath.Glob(filepath.Join(r.Path(), "tmp/pivot-import-*"))
	check(t, err)
	check(t, os.Rename(ours[0], filepath.Join(r.Path(), "tmp/pivot-import-00000000-0000-0000-0000-000000000000")))
	stats, err := importAll(t, r, s.commit, s.objects(), "os")
	check(t, err)
	if stats.BytesWritten == 0 {
		t.Error("nothing was written")
	}
	nothingLeft(t, r)
}

func TestTwoImportsAtOnce(t *testing.T) {
	s, other, r := newSource(t), newSource(t), newRepo(t)
	one, two := begin(t, r), begin(t, r)
	check(t, add(t, one, s.objects()))
	check(t, add(t, two, other.objects()))
	check(t, two.Finish(t.Context(), ostree.Root{Commit: other.commit, Refs: []string{"two"}}))
	check(t, two.Discard())
	check(t, one.Finish(t.Context(), ostree.Root{Commit: s.commit, Refs: []string{"one"}}))
	check(t, one.Discard())
	run(t, "ostree", "fsck", "--repo="+r.Path())
	nothingLeft(t, r)
}

// TestFinishWhileAdding finishes commits while objects are being added.
func TestFinishWhileAdding(t *testing.T) {
	s, r := newSource(t), newRepo(t)
	im := begin(t, r)
	var set []ostree.Checksum
	files := readFileObjects(t, s.bare())
	for c := range files {
		set = append(set, c)
	}
	group, ctx := errgroup.WithContext(t.Context())
	for c, a := range files {
		group.Go(func() error { return im.AddFile(ctx, c, a.info, bytes.NewReader(a.content)) })
		group.Go(func() error {
			if err := im.AddFile(ctx, c, a.info, bytes.NewReader(a.content)); err != nil {
				return err
			}
			// The other goroutine may still be writing the object: Finish waits for it.
			commit, err := im.AddObjectSet(ctx, []ostree.Checksum{c})
			if err != nil {
				return err
			}
			return im.Finish(ctx, ostree.Root{Commit: commit, Refs: []string{"set/" + c.String()}})
		})
	}
	check(t, group.Wait())
	commit, err := im.AddObjectSet(t.Context(), set)
	check(t, err)
	check(t, im.Finish(t.Context(), ostree.Root{Commit: commit, Refs: []string{"all"}}))
	check(t, im.Discard())
	run(t, "ostree", "fsck", "--repo="+r.Path())
	if refs := strings.Fields(run(t, "ostree", "refs", "--repo="+r.Path())); len(refs) != len(set)+1 {
		t.Errorf("refs %q, want %d", refs, len(set)+1)
	}
}

// TestFinishEqualRoots: equal object sets, as of layers with the same objects, are the same
// commit, and both of its refs are set.
func TestFinishEqualRoots(t *testing.T) {
	r := newRepo(t)
	im := begin(t, r)
	one, err := im.AddObjectSet(t.Context(), nil)
	check(t, err)
	two, err := im.AddObjectSet(t.Context(), nil)
	check(t, err)
	if one != two {
		t.Errorf("sets %s and %s of nothing", one, two)
	}
	check(t, im.Finish(t.Context(), ostree.Root{Commit: one, Refs: []string{"one"}}, ostree.Root{Commit: two, Refs: []string{"two"}}))
	check(t, im.Discard())
	run(t, "ostree", "fsck", "--repo="+r.Path())
	for _, ref := range []string{"one", "two"} {
		if got, err := r.ResolveRef(ref); err != nil || got != one {
			t.Errorf("ref %s is to %s, %v", ref, got, err)
		}
	}
}

func TestDeleteRef(t *testing.T) {
	s, r := newSource(t), newRepo(t)
	_, err := importAll(t, r, s.commit, s.objects(), "a/b")
	check(t, err)
	check(t, r.DeleteRef("a/b"))
	check(t, r.DeleteRef("a/b"))
	if refs := run(t, "ostree", "refs", "--repo="+r.Path()); refs != "" {
		t.Errorf("refs %q are left", refs)
	}
	if err := r.DeleteRef("../../config"); err == nil {
		t.Error("a bad name was taken")
	}
	check(t, os.MkdirAll(filepath.Join(r.Path(), "refs/heads/full/x"), 0o755)) // a name that cannot be removed
	if err := r.DeleteRef("full"); err == nil || !strings.Contains(err.Error(), "cannot delete ref") {
		t.Errorf("error %v", err)
	}
}

func TestRefsTo(t *testing.T) {
	s, r := newSource(t), newRepo(t)
	_, err := importAll(t, r, s.commit, s.objects(), "a/b/c", "a/d", "e")
	check(t, err)
	check(t, r.SetRefs(ostree.Checksum{1}, "a/other"))
	check(t, r.SetRefs(s.commit, "a/b/new"))
	check(t, os.WriteFile(r.Path()+"/refs/heads/a/no ref", nil, 0o644))
	for below, want := range map[string]string{"a": "a/b/c a/b/new a/d", "none": "", "a/b": "a/b/c a/b/new"} {
		if got, err := r.RefsTo(below, s.commit); err != nil || strings.Join(got, " ") != want {
			t.Errorf("below %s: %q, %v, want %q", below, got, err, want)
		}
	}
	if got := run(t, "ostree", "rev-parse", "--repo="+r.Path(), "a/b/new"); got != s.commit.String() {
		t.Errorf("ostree reads %s", got)
	}
}

func TestCancelledImport(t *testing.T) {
	s, r := newSource(t), newRepo(t)
	im := begin(t, r)
	check(t, add(t, im, s.objects()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := im.Finish(ctx, ostree.Root{Commit: s.commit, Refs: []string{"os"}}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that it was cancelled", err)
	}
	check(t, im.Discard())
	if _, err := r.ResolveRef("os"); err == nil {
		t.Error("a ref was set")
	}
}
