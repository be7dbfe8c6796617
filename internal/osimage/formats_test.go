package osimage_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"machine-pivot/internal/osimage"
	"machine-pivot/test/tools/need"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/ostreetree"
	"machine-pivot/test/worlds/registry"
)

// world is one commit of a small OS with all types of ostree objects.
type world struct {
	t       *testing.T
	tree    string
	bare    string // the repository in which ostree committed it
	archive string // the repository to which ostree pulled it
	commit  string
}

func newWorld(t *testing.T, contents ostreetree.Contents) *world {
	t.Helper()
	need.Ostree(t)
	dir := t.TempDir()
	w := &world{t: t, tree: filepath.Join(dir, "tree"), bare: filepath.Join(dir, "bare"), archive: filepath.Join(dir, "archive")}
	if err := ostreetree.Write(w.tree, contents); err != nil {
		t.Fatal(err)
	}
	ostreeTool(t, "init", "--repo="+w.bare, "--mode=bare")
	w.recommit()
	ostreeTool(t, "init", "--repo="+w.archive, "--mode=archive")
	ostreeTool(t, "pull-local", "--repo="+w.archive, w.bare, ostreetree.Branch)
	return w
}

// recommit commits the tree as it is now.
func (w *world) recommit() {
	w.t.Helper()
	var err error
	if w.commit, err = ostreetree.Commit(w.bare, w.tree); err != nil {
		w.t.Fatal(err)
	}
}

// encapsulated builds an ostree-native image of the commit.
func (w *world) encapsulated(opts ...oscontainer.Option) v1.Image {
	w.t.Helper()
	img, err := oscontainer.Encapsulated(w.bare, w.commit, append(opts, oscontainer.WithWorkDir(w.t.TempDir()))...)
	if err != nil {
		w.t.Fatal(err)
	}
	return img
}

// TestFormatsAsPulled imports one commit in each format and encoding and compares the result
// with a pull from the archive by ostree itself.
func TestFormatsAsPulled(t *testing.T) {
	w := newWorld(t, ostreetree.Contents{Big: true})
	pulled := bare(t)
	ostreeTool(t, "pull-local", "--untrusted", "--repo="+pulled, w.archive, ostreetree.Branch)

	former, zstd := oscontainer.WithFormerExport(), oscontainer.WithCompression(oscontainer.Zstd)
	plain, chunked := oscontainer.WithCompression(oscontainer.Uncompressed), oscontainer.WithChunks(5)
	for name, options := range map[string][]oscontainer.Option{
		"legacy":                        nil,
		"native, gzip":                  {},
		"native, gzip, chunked":         {chunked},
		"native, zstd":                  {zstd},
		"native, zstd, chunked":         {zstd, chunked},
		"native, plain, chunked":        {plain, chunked},
		"native, equal chunks":          {oscontainer.WithChunking(3, func(string, []string) int { return 0 })},
		"native, former, gzip":          {former},
		"native, former, gzip, chunked": {former, chunked},
		"native, former, zstd, chunked": {former, zstd, chunked},
		"native, former, dotted":        {former, oscontainer.WithPathPrefix("./")},
	} {
		t.Run(name, func(t *testing.T) {
			sample.Short(t, 8)
			img := w.encapsulated(options...)
			if name == "legacy" {
				img = legacy(t, w.archive, w.commit)
			}
			h := newHost(t, registry.Options{})
			ref, _ := h.push("x", img)
			repo := bare(t)
			result, err := h.importRef(ref, repo)
			if err != nil {
				t.Fatal(err)
			}
			w.checkAsPulled(t, repo, pulled, result)
		})
	}
}

// checkAsPulled compares a repository with one that ostree filled.
func (w *world) checkAsPulled(t *testing.T, repo, pulled string, result osimage.Result) {
	t.Helper()
	besides, err := ostreetree.Compare(repo, pulled, w.commit)
	if err != nil {
		t.Fatal(err)
	}
	if refs := allRefs(t, repo); refs[osimage.KeepAliveRef(result.Commit)] != result.Commit {
		t.Errorf("refs %q, want one to %s", refs, result.Commit)
	}
	// The deployed tree is the tree that was committed.
	if diff := ostreeTool(t, "diff", "--repo="+repo, result.Commit, w.tree); diff != "" {
		t.Errorf("ostree diff: %s", diff)
	}
	if result.Format == osimage.Legacy {
		if result.Commit != w.commit || len(besides) != 0 {
			t.Errorf("commit %s, want %s; objects besides: %q", result.Commit, w.commit, besides)
		}
		return
	}
	if list, err := ostreetree.List(pulled, w.commit); err != nil || list != ostreeTool(t, "ls", "--repo="+repo, "-R", "-C", "-X", result.Commit) {
		t.Errorf("the merged commit's tree is not that of the commit, %v", err)
	}
	if i := slices.IndexFunc(besides, func(o string) bool { return strings.HasSuffix(o, ".file") }); i >= 0 {
		t.Errorf("%s is of no use", besides[i])
	}
}

// TestLargeFile imports a file of more than 2 GiB, which compresses to nearly nothing. It
// imports a legacy image, and then a native image of the imported commit. If ostree accepts
// the second result, the first was right too.
func TestLargeFile(t *testing.T) {
	if testing.Short() {
		t.Skip("writes and reads 2 GiB several times")
	}
	need.Ostree(t)
	dir := t.TempDir()
	tree, archive := filepath.Join(dir, "tree"), filepath.Join(dir, "archive")
	if err := ostreetree.Write(tree, ostreetree.Contents{Sparse: true}); err != nil {
		t.Fatal(err)
	}
	ostreeTool(t, "init", "--repo="+archive, "--mode=archive")
	ostreeTool(t, "config", "--repo="+archive, "set", "archive.zlib-level", "1")
	commit, err := ostreetree.Commit(archive, tree)
	if err != nil {
		t.Fatal(err)
	}
	h := newHost(t, registry.Options{})
	first, second := &world{t: t, bare: bare(t), commit: commit}, bare(t)
	load := func(img v1.Image, repo string) {
		t.Helper()
		ref, _ := h.push("x", img)
		result, err := h.importRef(ref, repo)
		if err != nil || result.Bytes.Written < 2<<30 || result.Bytes.Fetched > 64<<20 {
			t.Fatalf("%+v, %v", result, err)
		}
	}
	load(legacy(t, archive, commit), first.bare)
	load(first.encapsulated(oscontainer.WithCompression(oscontainer.Zstd), oscontainer.WithChunks(2)), second)
	if _, err := ostreetree.Compare(second, first.bare, commit); err != nil {
		t.Error(err)
	}
}
