package osimage_test

import (
	"errors"
	"slices"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"machine-pivot/internal/osimage"
	"machine-pivot/internal/ostree"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/ostreetree"
	"machine-pivot/test/worlds/registry"
)

// hiddenRoot changes an OS to one that mounts only /usr and /etc of its commit, as the older ones.
func hiddenRoot(o *osTree) {
	o.remove(prepareRoot)
	o.link("opt", "var/opt")
	o.mkdir("srv", 0o755)
}

// outside is a layer with names beside /usr and /etc.
func outside() []entry {
	return []entry{regular("opt/app", "app"), gone("srv"), regular("usr/bin/app", "app")}
}

// derivedFrom returns an image with one more layer per list of entries.
func derivedFrom(t *testing.T, base v1.Image, layers ...[]entry) v1.Image {
	t.Helper()
	opts := []oscontainer.Option{oscontainer.WithWorkDir(t.TempDir())}
	for _, entries := range layers {
		opts = append(opts, oscontainer.WithDerived(entries...))
	}
	img, err := oscontainer.Derive(base, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// takes pushes and imports an image, which must succeed.
func (h *host) takes(name string, img v1.Image, repo string) osimage.Result {
	h.t.Helper()
	ref, _ := h.push(name, img)
	result, err := h.importRef(ref, repo)
	if err != nil {
		h.t.Fatal(err)
	}
	ostreeTool(h.t, "fsck", "--repo="+repo)
	return result
}

// asFresh imports an image into a repository that has layers of others, and checks that the result is
// that of an import into an empty repository.
func (h *host) asFresh(name string, img v1.Image, repo string) {
	h.t.Helper()
	fresh, other := bare(h.t), h.takes(name, img, repo)
	want := h.takes(name, img, fresh)
	if different := difference(list(h.t, fresh, want.Commit), list(h.t, repo, other.Commit)); different != "" {
		h.t.Errorf("%s: an import into an empty repository gives another tree:\n%s", name, different)
	}
	if !slices.Equal(want.Notes, other.Notes) {
		h.t.Errorf("%s: notes %q, an import into an empty repository has %q", name, other.Notes, want.Notes)
	}
}

// TestContinuedAsFresh: an interrupted import that is continued gives the tree, and the notes, of
// one that was not interrupted, also if the base does not show its root.
func TestContinuedAsFresh(t *testing.T) {
	o := newOSTree(t)
	hiddenRoot(o)
	h := newHost(t, registry.Options{})
	h.givePolicy(contexts)
	img := derivedFrom(t, o.encapsulated(), append(builtEntries(), outside())...)
	ref, _ := h.push("x", img)
	image, repo := h.resolve(ref), bare(t)
	h.interrupt(image, repo, 6) // of nine: the commit, the layer beside usr and the stalled one have no ref
	for ref := range allRefs(t, repo) {
		if commit := allRefs(t, repo)[ref]; hasPath(t, repo, commit, "/opt") {
			t.Errorf("%s has /opt, which other programs would merge", ref)
		}
	}
	h.asFresh("x", img, repo)
}

// builtEntries are the entries of builtLayers.
func builtEntries() (layers [][]entry) {
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		layers = append(layers, []entry{regular("usr/share/layer-"+name, name)})
	}
	return layers
}

func hasPath(t *testing.T, repo, commit, path string) bool {
	t.Helper()
	_, err := ostreetree.Ostree("ls", "--repo="+repo, commit, path)
	return err == nil
}

// TestLayerOnTwoBases: what a layer gave an image does not depend on images that shared the layer before. Neither the
// view of their root matters, nor the targets of its hard links there.
func TestLayerOnTwoBases(t *testing.T) {
	h := newHost(t, registry.Options{})
	o := newOSTree(t)
	other := o.copy()
	hiddenRoot(other)
	other.write("usr/bin/tool", "another tool")
	seen, hidden := o.encapsulated(), other.encapsulated()
	for _, c := range []struct {
		name  string
		layer []entry
	}{
		{"beside usr and etc", outside()},
		{"a hard link", []entry{hard("usr/bin/tool-too", "usr/bin/tool")}},
		{"both", append(outside(), hard("usr/bin/tool-too", "usr/bin/tool"))},
	} {
		for _, order := range [][2]v1.Image{{seen, hidden}, {hidden, seen}} {
			t.Run(c.name, func(t *testing.T) {
				h.t = t
				repo := bare(t)
				h.takes("first", derivedFrom(t, order[0], c.layer), repo)
				h.asFresh("second", derivedFrom(t, order[1], c.layer), repo)
				h.asFresh("first", derivedFrom(t, order[0], c.layer), repo)
			})
		}
	}
}

// TestLayerOfAnotherKind: a blob that another image has as a layer of another kind is fetched again.
func TestLayerOfAnotherKind(t *testing.T) {
	h := newHost(t, registry.Options{})
	o := newOSTree(t)
	base := o.encapsulated(spread(3))
	image := func() v1.Image { return derivedFrom(t, base, []entry{regular("usr/share/one", "1")}) }
	native := h.takes("native", image(), bare(t))
	layers, err := image().Layers()
	o.must(err)
	repo := bare(t)
	plain, err := mutate.AppendLayers(plainImage(t, o, 1), layers...)
	o.must(err)
	h.takes("plain", plain, repo)
	again := h.takes("native", image(), repo)
	if again.Commit != native.Commit {
		t.Errorf("commit %s, want %s", again.Commit, native.Commit)
	}
	commit, err := ostree.ParseChecksum(again.Commit)
	o.must(err)
	if kept, err := osimage.Kept(t.Context(), openRepo(t, repo), commit, parse(t, h.registry.Host()+"/test/os:native")); err != nil || !kept {
		t.Errorf("kept: %v, %v", kept, err)
	}
}

// TestLayerOfOtherRules: a derived layer that another program or an earlier release has imported, by its own
// rules, is fetched again, once.
func TestLayerOfOtherRules(t *testing.T) {
	h := newHost(t, registry.Options{})
	img := derivedFrom(t, newOSTree(t).encapsulated(), []entry{regular("usr/share/one", "1")}, []entry{regular("usr/share/two", "2")})
	ref, _ := h.push("x", img)
	image, repo := h.resolve(ref), bare(t)
	first := h.takes("x", img, repo)
	other := layerRef(image.Layers[2])
	commit := ostreeTool(t, "commit", "--repo="+repo, "--orphan", "--tree=ref="+other, "--add-metadata-string=ostree.importer.version=0.15.3")
	ostreeTool(t, "refs", "--repo="+repo, "--delete", other)
	ostreeTool(t, "refs", "--repo="+repo, "--create="+other, commit)
	for _, want := range [][]int{{2}, nil} {
		since := h.registry.Requests()
		if again := h.takes("x", img, repo); again.Commit != first.Commit {
			t.Errorf("commit %s, want %s", again.Commit, first.Commit)
		}
		if layers := h.fetched(image, since); !slices.Equal(layers, want) {
			t.Errorf("layers %v were fetched, want %v", layers, want)
		}
	}
}

// TestKeptWithoutRef: an image is complete without the ref of a layer with hard links to files of lower layers, and not
// without that of any other.
func TestKeptWithoutRef(t *testing.T) {
	h := newHost(t, registry.Options{})
	img := derivedFrom(t, newOSTree(t).encapsulated(), []entry{hard("usr/bin/tool-too", "usr/bin/tool")}, []entry{regular("usr/share/two", "2")})
	ref, _ := h.push("x", img)
	image, repo := h.resolve(ref), bare(t)
	commit, err := ostree.ParseChecksum(h.takes("x", img, repo).Commit)
	if err != nil {
		t.Fatal(err)
	}
	if missing := without(t, image, repo); !slices.Equal(missing, []int{1}) {
		t.Errorf("layers %v have no ref", missing)
	}
	if kept, err := osimage.Kept(t.Context(), openRepo(t, repo), commit, ref); err != nil || !kept {
		t.Errorf("kept: %v, %v", kept, err)
	}
	ostreeTool(t, "refs", "--repo="+repo, "--delete", layerRef(image.Layers[2]))
	_, err = osimage.Kept(t.Context(), openRepo(t, repo), commit, ref)
	if lost, is := errors.AsType[osimage.LostError](err); !is || !slices.Equal(lost.Layers, []string{image.Layers[2].Digest}) {
		t.Errorf("without the ref of another layer: %v", err)
	}
}

// TestNoLabelLeft: what no policy of an image labels has no label, whatever policy the host has or an
// image had that shared the layer before.
func TestNoLabelLeft(t *testing.T) {
	o, none := newOSTree(t), newOSTree(t)
	none.remove("usr/etc/selinux")
	shared := []entry{directory("usr/share/more"), regular("usr/share/more/one", "1"), symlink("usr/share/more/two", "one")}
	labelled, unlabelled := derivedFrom(t, plainImage(t, o, 2), shared), derivedFrom(t, plainImage(t, none, 2), shared)
	h, guesses := newHost(t, registry.Options{}), newHost(t, registry.Options{})
	guesses.givePolicy(contexts)
	repo, guessed := bare(t), bare(t)
	h.takes("labelled", labelled, repo)
	h.asFresh("unlabelled", unlabelled, repo)
	want := list(t, repo, h.takes("unlabelled", unlabelled, repo).Commit)
	if different := difference(want, list(t, guessed, guesses.takes("x", unlabelled, guessed).Commit)); different != "" {
		t.Errorf("on a host with another policy:\n%s", different)
	}
}
