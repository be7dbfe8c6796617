package oscontainer_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"machine-pivot/test/tools/need"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/ostreetree"
)

// reference is the directory with the output of the reference implementation; see README.md there.
const reference = "../../../internal/osimage/testdata/reference"

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// source returns a bare repository with the commit that the reference exported.
func source(t *testing.T) (repo, commit string) {
	t.Helper()
	need.Ostree(t)
	dir := t.TempDir()
	repo, tree := filepath.Join(dir, "repo"), filepath.Join(dir, "tree")
	check(t, ostreetree.Write(tree, ostreetree.Contents{}))
	check(t, ostreetree.Init(repo, "bare"))
	commit, err := ostreetree.Commit(repo, tree)
	check(t, err)
	want, err := os.ReadFile(filepath.Join(reference, "commit"))
	check(t, err)
	if commit != strings.TrimSpace(string(want)) {
		if listing, err := ostreetree.List(repo, commit); err == nil && strings.Contains(listing, "security.selinux") {
			need.Lacking(t, "needs files without labels, which make another commit of them")
		}
		t.Fatalf("the tree's commit is %s, not %s", commit, want)
	}
	return repo, commit
}

// firstDigit distributes objects in the same way as in the reference's export.
func firstDigit(checksum string, _ []string) int {
	switch {
	case checksum[0] < '6':
		return 1
	case checksum[0] < 'b':
		return 2
	}
	return 3
}

// TestFormerExportIsTheReferences compares images with those of the reference implementation: the
// digest of each archive, and all labels.
func TestFormerExportIsTheReferences(t *testing.T) {
	repo, commit := source(t)
	for name, opts := range map[string][]oscontainer.Option{
		"single": nil,
		// The exporter reserves one chunk.
		"chunked": {oscontainer.WithChunking(4, firstDigit)},
		"layered": append(oscontainer.Changes(), oscontainer.WithChunking(4, firstDigit)),
	} {
		t.Run(name, func(t *testing.T) {
			opts := append(opts, oscontainer.WithFormerExport(), oscontainer.WithWorkDir(t.TempDir()),
				oscontainer.WithLabel("version", "")) // that exporter does not set it
			img, err := oscontainer.Encapsulated(repo, commit, opts...)
			check(t, err)
			got, err := img.ConfigFile()
			check(t, err)
			want := referenceConfig(t, name)
			if !maps.Equal(got.Config.Labels, want.Config.Labels) {
				t.Errorf("labels %v, want %v", got.Config.Labels, want.Config.Labels)
			}
			if len(got.RootFS.DiffIDs) != len(want.RootFS.DiffIDs) {
				t.Fatalf("%d layers, want %d", len(got.RootFS.DiffIDs), len(want.RootFS.DiffIDs))
			}
			for i, diff := range got.RootFS.DiffIDs {
				if diff != want.RootFS.DiffIDs[i] {
					t.Errorf("layer %d is %s, want %s", i, diff, want.RootFS.DiffIDs[i])
				}
			}
		})
	}
}

func referenceConfig(t *testing.T, name string) *v1.ConfigFile {
	t.Helper()
	index, err := layout.Path(filepath.Join(reference, name, "image")).ImageIndex()
	check(t, err)
	list, err := index.IndexManifest()
	check(t, err)
	img, err := index.Image(list.Manifests[0].Digest)
	check(t, err)
	config, err := img.ConfigFile()
	check(t, err)
	return config
}

// TestEncapsulatedIsDeterministic: the same input gives the same digest.
func TestEncapsulatedIsDeterministic(t *testing.T) {
	repo, commit := source(t)
	for _, compression := range []oscontainer.Compression{oscontainer.Gzip, oscontainer.Zstd, oscontainer.Uncompressed} {
		var digests [2]v1.Hash
		for i := range digests {
			img, err := oscontainer.Encapsulated(repo, commit, oscontainer.WithChunks(3),
				oscontainer.WithCompression(compression), oscontainer.WithWorkDir(t.TempDir()))
			check(t, err)
			digests[i], err = img.Digest()
			check(t, err)
		}
		if digests[0] != digests[1] {
			t.Errorf("compression %d: %s, then %s", compression, digests[0], digests[1])
		}
	}
}
