package osimage_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/osimage"
	"machine-pivot/internal/ostree/gvariant"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/ostreetree"
	"machine-pivot/test/worlds/registry"
)

// TestImportAsTheReference imports images of the reference implementation and compares the
// result with that of the reference: refs, objects and commits.
func TestImportAsTheReference(t *testing.T) {
	for _, name := range []string{"single", "chunked"} {
		t.Run(name, func(t *testing.T) {
			sample.Short(t, 4)
			want := reference(t, name)
			h := newHost(t, registry.Options{})
			ref, _ := h.push(name, want.image())
			repo := bare(t)
			result, err := h.importRef(ref, repo)
			if err != nil {
				t.Fatal(err)
			}
			port := h.registry.Port()
			checkAsReference(t, repo, want, result, fmt.Sprintf("docker_3A__2F__2F_127_2E_0_2E_0_2E_1_3A_%d/test/os_3A_%s", port, name))
		})
		t.Run(name+" from a directory", func(t *testing.T) {
			want := reference(t, name)
			dir := filepath.Join(t.TempDir(), "an_image")
			if err := os.CopyFS(dir, os.DirFS(filepath.Join(want.dir, "image"))); err != nil {
				t.Fatal(err)
			}
			repo := bare(t)
			h := newHost(t, registry.Options{})
			result, err := h.importRef(parse(t, "oci:"+dir), repo)
			if err != nil {
				t.Fatal(err)
			}
			// A slash is kept only after a letter or digit.
			escaped := strings.NewReplacer("_", "__", "-", "-", ".", "_2E_").Replace(dir[1:])
			checkAsReference(t, repo, want, result, "oci_3A__2F_"+escaped)
		})
	}
}

func checkAsReference(t *testing.T, repo string, want *made, result osimage.Result, imageRef string) {
	t.Helper()
	ostreeTool(t, "fsck", "--repo="+repo)
	merged := result.Commit
	refs := map[string]string{"ostree/container/image/" + imageRef: merged, osimage.KeepAliveRef(merged): merged}
	for ref, commit := range want.refs {
		if strings.HasPrefix(ref, "ostree/container/blob/") {
			refs[ref] = commit
		}
	}
	if got := allRefs(t, repo); !reflect.DeepEqual(got, refs) {
		t.Errorf("refs %v\nwant %v", got, refs)
	}

	// The merged commit is compared below; it has the same tree.
	objects := want.objects()
	i := slices.Index(objects, want.merged()[:2]+"/"+want.merged()[2:]+".commit")
	objects[i] = merged[:2] + "/" + merged[2:] + ".commit"
	slices.Sort(objects)
	got, err := ostreetree.Objects(repo)
	if err != nil || !slices.Equal(got, objects) {
		t.Errorf("%v\nobjects %q\nwant    %q", err, got, objects)
	}

	base := want.commit()
	listing := strings.Join(want.lines(filepath.Base(want.dir)+"/merged"), "\n")
	for _, commit := range []string{base, merged} {
		if got := ostreeTool(t, "ls", "--repo="+repo, "-R", "-C", "-X", commit); got != listing {
			t.Errorf("commit %s is\n%s\nwant\n%s", commit, got, listing)
		}
	}
	if diff := ostreeTool(t, "diff", "--repo="+repo, base, merged); diff != "" {
		t.Errorf("ostree diff: %s", diff)
	}
	checkMerged(t, decodeCommit(t, filepath.Join(repo, "objects", merged[:2], merged[2:]+".commit")),
		decodeCommit(t, filepath.Join(want.dir, "commits", want.merged())), base)
}

// checkMerged compares commits by their meaning: the reference writes metadata and the keys of
// JSON objects in no particular order.
func checkMerged(t *testing.T, got, want gvariant.Tuple, base string) {
	t.Helper()
	if parent := fmt.Sprintf("%x", got[1]); parent != base { // as in newer releases of the reference; the recorded one sets no parent
		t.Errorf("parent %s, want %s", parent, base)
	}
	if !reflect.DeepEqual(got[2:], want[2:]) {
		t.Errorf("commit %v\nwant %v", got[2:], want[2:])
	}
	ours, theirs := metadata(got), metadata(want)
	if ours["ostree.importer.version"] != "pivot" || theirs["ostree.importer.version"] != "0.15.3" {
		t.Errorf("importers %q, %q", ours["ostree.importer.version"], theirs["ostree.importer.version"])
	}
	ours["ostree.importer.version"] = theirs["ostree.importer.version"]
	if filtered := theirs["ostree.tar-filtered"].([]any); len(filtered) != 0 {
		t.Errorf("filtered %v", filtered)
	}
	delete(theirs, "ostree.tar-filtered") // the parts left out of derived layers; newer releases do not write it
	for _, all := range []map[string]any{ours, theirs} {
		for _, key := range []string{"ostree.manifest", "ostree.container.image-config"} {
			var v any
			if err := json.Unmarshal([]byte(all[key].(string)), &v); err != nil {
				t.Fatalf("%s: %v", key, err)
			}
			all[key] = v
		}
	}
	if !reflect.DeepEqual(ours, theirs) {
		t.Errorf("metadata %v\nwant     %v", ours, theirs)
	}
}

// allRefs returns the commits of a repository by ref.
func allRefs(t *testing.T, repo string) map[string]string {
	t.Helper()
	refs, err := ostreetree.Refs(repo)
	if err != nil {
		t.Fatal(err)
	}
	return refs
}

// TestLayeredAsTheReference: derived layers are merged into the same tree as by the reference.
func TestLayeredAsTheReference(t *testing.T) {
	want := reference(t, "layered")
	h := newHost(t, registry.Options{})
	ref, _ := h.push("layered", want.image())
	if image := h.resolve(ref); image.Format != osimage.Layered || image.Commit != want.commit() || image.Derived != 2 {
		t.Errorf("resolved as %+v", image)
	}
	repo := bare(t)
	result, err := h.importRef(ref, repo)
	if err != nil {
		t.Fatal(err)
	}
	ostreeTool(t, "fsck", "--repo="+repo)
	// Newer releases of the reference leave out the empty files of container tools. With a newer
	// libostree they keep /var in its place; the recorded one used an older libostree.
	listing := withoutDirTrees(strings.Join(want.lines("layered/merged"), "\n"))
	listing = strings.ReplaceAll(listing, "/usr/share/factory/var", "/var")
	got := withoutDirTrees(ostreeTool(t, "ls", "--repo="+repo, "-R", "-C", "-X", result.Commit))
	if different := difference(listing, got); !regexp.MustCompile(
		`^- -00644 0 0 +0 \w+ { @a\(ayay\) \[\] } /usr/etc/(hostname|resolv.conf)\n- .* /usr/etc/(hostname|resolv.conf)\n- d.* /usr/share/factory\n$`).MatchString(different) {
		t.Errorf("the merged commit differs:\n%s", different)
	}
	if notes := strings.Join(result.Notes, "\n"); len(result.Notes) != 2 || !strings.Contains(notes, "/opt of derived layer 1 is left out") || !strings.Contains(notes, "1 file(s) below /var, as /var/lib/derived") {
		t.Errorf("notes %q", result.Notes)
	}
	again, err := h.importRef(ref, repo)
	if err != nil || again.Commit != result.Commit || again.Bytes.Fetched != 0 || again.Objects.New != 0 {
		t.Errorf("again: %+v, %v", again, err)
	}
}

// withoutDirTrees removes the checksums of directories from a listing. They follow from the
// rest.
func withoutDirTrees(listing string) string {
	return regexp.MustCompile(`(?m)^( *d\S+ \d+ \d+ +0) \w{64}`).ReplaceAllString(listing, "$1")
}

// TestReferenceGoesOn: layers that the reference imported are not fetched again.
func TestReferenceGoesOn(t *testing.T) {
	want := reference(t, "chunked")
	h := newHost(t, registry.Options{})
	ref, _ := h.push("x", want.image())
	repo := bare(t)
	first, err := h.importRef(ref, repo)
	if err != nil {
		t.Fatal(err)
	}
	// The state that the reference leaves: its own merge commit, and no keep-alive ref.
	put := func(commit string) {
		data, err := os.ReadFile(filepath.Join(want.dir, "commits", commit))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(repo, "objects", commit[:2]), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(repo, "objects", commit[:2], commit[2:]+".commit"), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put(want.merged())
	for ref, commit := range allRefs(t, repo) {
		if commit == first.Commit {
			ostreeTool(t, "refs", "--repo="+repo, "--delete", ref)
		}
	}
	for ref, commit := range want.refs {
		if commit == want.merged() {
			ostreeTool(t, "refs", "--repo="+repo, "--create="+ref, commit)
		}
	}
	ostreeTool(t, "prune", "--repo="+repo, "--refs-only", "--depth=-1")
	again, err := h.importRef(ref, repo)
	if err != nil || again.Commit != first.Commit || again.Bytes.Fetched != 0 || again.Objects.New != 1 {
		t.Errorf("%+v, %v", again, err)
	}
}
