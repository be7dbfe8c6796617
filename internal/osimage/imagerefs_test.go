package osimage_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/osimage"
	"machine-pivot/internal/ostree"
	"machine-pivot/test/worlds/registry"
)

// importVersions imports versions of an image, which share layers, and returns the repository
// and their commits.
func importVersions(t *testing.T, versions ...string) (path string, commits []ostree.Checksum) {
	t.Helper()
	o := newOSTree(t)
	h := newHost(t, registry.Options{})
	path = bare(t)
	kind := builtKinds(t, o)[0]
	for _, version := range versions {
		ref, _ := h.push("v"+version, kind.build(builtLayers(version)...))
		result, err := h.importRef(ref, path)
		o.must(err)
		commit, err := ostree.ParseChecksum(result.Commit)
		o.must(err)
		commits = append(commits, commit)
	}
	return path, commits
}

// TestRemove (P77): removing an image removes everything except layers that another image
// shares, which stays complete. For a deployed image it removes only the ref of the import.
func TestRemove(t *testing.T) {
	path, commits := importVersions(t, "1", "2")
	repo := openRepo(t, path)
	both := refsOf(t, path)
	if err := osimage.Remove(repo, commits[0], commits[0]); err != nil {
		t.Fatal(err)
	}
	deployed := refsOf(t, path)
	if gone := minus(both, deployed); len(gone) != 1 || gone[0] != osimage.KeepAliveRef(commits[0].String()) {
		t.Errorf("a deployed image has lost %q", gone)
	}
	if err := osimage.Remove(repo, commits[0]); err != nil {
		t.Fatal(err)
	}
	gone := minus(deployed, refsOf(t, path))
	if len(gone) != 2 || !strings.HasPrefix(gone[0], "ostree/container/blob/") || !strings.HasPrefix(gone[1], "ostree/container/image/") {
		t.Errorf("an image with one layer of its own has lost %q", gone)
	}
	ostreeTool(t, "prune", "--repo="+path, "--refs-only", "--depth=0")
	if err := repo.HasWhole(t.Context(), commits[1]); err != nil {
		t.Errorf("the other image: %v", err)
	}
	if there, err := repo.Has(ostree.ObjectName{Checksum: commits[0], Type: ostree.Commit}); err != nil || there {
		t.Errorf("the image that was given up is there: %v", err)
	}
	if err := osimage.Remove(repo, commits[1]); err != nil {
		t.Fatal(err)
	}
	if left := refsOf(t, path); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if err := osimage.Remove(repo, commits[1]); err != nil { // idempotent
		t.Fatal(err)
	}
}

// TestRemoveUndeployed: images that neither a deployment nor the ref of an import needs lose
// their refs, and the layers that no other image shares.
func TestRemoveUndeployed(t *testing.T) {
	path, commits := importVersions(t, "1", "2", "3")
	repo := openRepo(t, path)
	imported := refsOf(t, path)
	if removed, err := osimage.RemoveUndeployed(repo); removed || err != nil || len(minus(imported, refsOf(t, path))) > 0 {
		t.Errorf("removed %v (%v) though nothing is deployed yet: %q", removed, err, minus(imported, refsOf(t, path)))
	}
	for _, commit := range commits[:2] { // as after their deployment
		if err := repo.DeleteRef(osimage.KeepAliveRef(commit.String())); err != nil {
			t.Fatal(err)
		}
	}
	before := refsOf(t, path)
	removed, err := osimage.RemoveUndeployed(repo, commits[1])
	gone := minus(before, refsOf(t, path))
	if err != nil || !removed || len(gone) != 2 || !strings.HasPrefix(gone[0], "ostree/container/blob/") || !strings.HasPrefix(gone[1], "ostree/container/image/") {
		t.Errorf("removed %v, %v: %q", removed, err, gone)
	}
	ostreeTool(t, "prune", "--repo="+path, "--refs-only", "--depth=0")
	for _, commit := range commits[1:] {
		if err := repo.HasWhole(t.Context(), commit); err != nil {
			t.Errorf("an image that is needed: %v", err)
		}
	}
	if removed, err := osimage.RemoveUndeployed(repo, commits[1]); removed || err != nil {
		t.Errorf("removed again: %v, %v", removed, err)
	}
}

// TestRemoveProtected: a layer keeps its ref while anything needs it that rpm-ostree and bootc respect, and
// while an import runs.
func TestRemoveProtected(t *testing.T) {
	path, commits := importVersions(t, "1", "2", "3")
	repo := openRepo(t, path)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, commit := range commits { // as after their deployment
		must(repo.DeleteRef(osimage.KeepAliveRef(commit.String())))
	}
	const base, layered = "ostree/container/baseimage/project/name", "rpmostree/base/0"
	must(repo.SetRefs(commits[0], base))
	must(repo.SetRefs(commits[1], layered))
	before := refsOf(t, path)
	_, err := osimage.RemoveUndeployed(repo, commits[2])
	must(err)
	if gone := minus(before, refsOf(t, path)); len(gone) != 2 || !strings.HasPrefix(gone[0], "ostree/container/image/") || !strings.HasPrefix(gone[1], "ostree/container/image/") {
		t.Errorf("removed %q, want the refs of two images", gone)
	}

	must(repo.DeleteRef(base))
	must(repo.DeleteRef(layered))
	before = refsOf(t, path)
	running, err := repo.BeginImport(t.Context())
	must(err)
	must(osimage.Remove(repo, commits[0]))
	if gone := minus(before, refsOf(t, path)); len(gone) > 0 {
		t.Errorf("removed %q while an import runs", gone)
	}
	must(running.Discard())
	must(osimage.Remove(repo, commits[0]))
	if gone := minus(before, refsOf(t, path)); len(gone) != 1 || !strings.HasPrefix(gone[0], "ostree/container/blob/") {
		t.Errorf("removed %q, want the layer that only this image has", gone)
	}
}

func refsOf(t *testing.T, path string) []string {
	t.Helper()
	return slices.Sorted(maps.Keys(allRefs(t, path)))
}

// minus returns the elements of a list that another list does not have.
func minus(all, others []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(others, s) })
}
