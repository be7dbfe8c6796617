package osimage_test

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/compression"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/registry"
)

// checkImported checks an imported commit with the real ostree.
func checkImported(t *testing.T, repo, commit string, result osimage.Result) {
	t.Helper()
	if result.Commit != commit || result.Version != "1.2.3" || result.Objects.Total == 0 || result.Bytes.Fetched == 0 || result.Seconds <= 0 {
		t.Errorf("result %+v, want commit %s", result, commit)
	}
	ostreeTool(t, "fsck", "--repo="+repo)
	if refs := allRefs(t, repo); len(refs) != 1 || refs[osimage.KeepAliveRef(commit)] != commit {
		t.Errorf("refs %q", refs)
	}
}

// checkUntouched checks that a failed import left no refs and no objects.
func checkUntouched(t *testing.T, repo string) {
	t.Helper()
	if refs := allRefs(t, repo); len(refs) > 0 {
		t.Errorf("refs %q after a failed import", refs)
	}
	objects, err := filepath.Glob(filepath.Join(repo, "objects/*/*"))
	if err != nil || len(objects) != 0 {
		t.Errorf("%d objects after a failed import, %v", len(objects), err)
	}
	noPartial(t, repo)
}

func TestImportLegacy(t *testing.T) {
	repo, commit := archive(t)
	for name, opts := range map[string][]oscontainer.Option{
		"usual":    nil,
		"dotted":   {oscontainer.WithPathPrefix("./")},
		"absolute": {oscontainer.WithPathPrefix("/"), oscontainer.WithLayers(5)},
		"no-label": {oscontainer.WithLabel("com.coreos.ostree-commit", ""), oscontainer.WithLabel("version", "")},
	} {
		t.Run(name, func(t *testing.T) {
			sample.Short(t, 8)
			h := newHost(t, registry.Options{})
			ref, digest := h.push(name, legacy(t, repo, commit, opts...))
			var last osimage.Progress
			h.report = func(p osimage.Progress) {
				if p.FetchedBytes < last.FetchedBytes {
					t.Errorf("progress went back: %+v, %+v", last, p)
				}
				last = p
			}
			target := bare(t)
			result, err := h.importRef(ref, target)
			if err != nil {
				t.Fatal(err)
			}
			checkImported(t, target, commit, result)
			if result.Digest != digest {
				t.Errorf("digest %s, want %s", result.Digest, digest)
			}
			if last.FetchedBytes != last.TotalBytes || last.TotalBytes == 0 || last.Objects != result.Objects.Total {
				t.Errorf("last progress %+v", last)
			}
			h.report = nil
			again, err := h.importRef(ref, target)
			if err != nil || again.Commit != commit || again.Objects.New != 0 {
				t.Errorf("second import: %+v, %v", again, err)
			}
			if labelled := name != "no-label"; labelled != (again.Bytes.Fetched == 0) {
				t.Errorf("second import: %d bytes fetched", again.Bytes.Fetched)
			}
		})
	}
}

// TestImportRepairs: a commit with missing objects is imported again.
func TestImportRepairs(t *testing.T) {
	repo, commit := archive(t)
	h := newHost(t, registry.Options{})
	ref, _ := h.push("x", legacy(t, repo, commit))
	target := bare(t)
	if _, err := h.importRef(ref, target); err != nil {
		t.Fatal(err)
	}
	objects, err := filepath.Glob(filepath.Join(target, "objects/*/*.file"))
	if err != nil || len(objects) == 0 {
		t.Fatal(err)
	}
	if err := os.Remove(objects[0]); err != nil {
		t.Fatal(err)
	}
	result, err := h.importRef(ref, target)
	if err != nil || result.Objects.New != 1 {
		t.Errorf("%+v, %v", result, err)
	}
	checkImported(t, target, commit, result)
}

func TestImportZstd(t *testing.T) {
	repo, commit := archive(t)
	gzipped := legacy(t, repo, commit)
	layers, err := gzipped.Layers()
	if err != nil {
		t.Fatal(err)
	}
	config, err := gzipped.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.Config(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), config.Config)
	if err != nil {
		t.Fatal(err)
	}
	for _, layer := range layers {
		zstd, err := tarball.LayerFromOpener(layer.Uncompressed, tarball.WithCompression(compression.ZStd), tarball.WithMediaType(types.OCILayerZStd))
		if err != nil {
			t.Fatal(err)
		}
		if img, err = mutate.AppendLayers(img, zstd); err != nil {
			t.Fatal(err)
		}
	}
	h := newHost(t, registry.Options{})
	ref, _ := h.push("zstd", img)
	target := bare(t)
	result, err := h.importRef(ref, target)
	if err != nil {
		t.Fatal(err)
	}
	checkImported(t, target, commit, result)
}

func TestLegacyIsDeterministic(t *testing.T) {
	repo, commit := archive(t)
	one, err := legacy(t, repo, commit).Digest()
	two, err2 := legacy(t, repo, commit).Digest()
	if err != nil || err2 != nil || one != two {
		t.Errorf("%s, %s, %v, %v", one, two, err, err2)
	}
}

// writeOCIArchive packs an OCI layout.
func writeOCIArchive(t *testing.T, dir, name string) {
	t.Helper()
	var buf bytes.Buffer
	out := tar.NewWriter(&buf)
	if err := out.AddFS(os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, buf.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// writeDir writes an image in the format of skopeo's dir: transport.
func writeDir(t *testing.T, dir string, img v1.Image) {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	put := func(name string, content []byte, err error) {
		t.Helper()
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put("version", []byte("Directory Transport Version: 1.1\n"), nil)
	raw, err := img.RawManifest()
	put("manifest.json", raw, err)
	config, err := img.RawConfigFile()
	put(sha(img.ConfigName()), config, err)
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, layer := range layers {
		body, err := layer.Compressed()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(body)
		put(sha(layer.Digest()), content, err)
	}
}

func sha(h v1.Hash, _ error) string { return h.Hex }

func TestImportWithoutCommit(t *testing.T) {
	repo, commit := archive(t)
	other := ostreeTool(t, "commit", "--repo="+repo, "--branch=test/other", "--tree=ref=test/os")
	unlabelled := oscontainer.WithLabel("com.coreos.ostree-commit", "")
	h := newHost(t, registry.Options{})
	for name, c := range map[string]struct {
		img  v1.Image
		want string
	}{
		"none":       {plain(t, unlabelled), "nor an ostree commit (no label com.coreos.ostree-commit, no /srv/repo)"},
		"no-objects": {plain(t), "no ostree objects"},
		"two-refs":   {legacy(t, repo, commit, unlabelled), "multiple refs found in its /srv/repo (test/os, test/other)"},
		"bad-label":  {legacy(t, repo, "xyz"), "its label com.coreos.ostree-commit names no commit"},
		"absent":     {legacy(t, repo, strings.Repeat("1", 64)), ""},
	} {
		ref, _ := h.push(name, c.img)
		target := bare(t)
		_, err := h.importRef(ref, target)
		refused(t, err, fault.BadInput, c.want, "")
		checkUntouched(t, target)
	}
	ostreeTool(t, "refs", "--repo="+repo, "--delete", "test/os", "test/other")
	ref, _ := h.push("no-refs", legacy(t, repo, commit, unlabelled))
	_, err := h.importRef(ref, bare(t))
	refused(t, err, fault.BadInput, "no refs found in its /srv/repo", "")
	ref, _ = h.push("other", legacy(t, repo, other)) // the label takes precedence
	if result, err := h.importRef(ref, bare(t)); err != nil || result.Commit != other {
		t.Errorf("%+v, %v", result, err)
	}
}

func TestImportCut(t *testing.T) {
	repo, commit := archive(t)
	h := newHost(t, registry.Options{})
	img := legacy(t, repo, commit)
	ref, _ := h.push("x", img)
	target := bare(t)
	image, err := h.lookUp(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	h.registry.CutBlobs(100, 1500) // more often than downloads are retried; the config is smaller
	_, err = h.importRef(image.Reference, target)
	refused(t, err, fault.Unavailable, "unexpected EOF", "reach "+h.registry.Host())
	checkUntouched(t, target)

	h.registry.CutBlobs(0, 0)
	result, err := h.importRef(image.Reference, target)
	if err != nil {
		t.Fatal(err)
	}
	checkImported(t, target, commit, result)
}

func TestImportCancelled(t *testing.T) {
	repo, commit := archive(t)
	h := newHost(t, registry.Options{})
	ref, _ := h.push("x", legacy(t, repo, commit))
	target := bare(t)
	image, err := h.lookUp(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	h.report = func(osimage.Progress) { cancel() }
	_, err = h.importWith(ctx, image.Reference, target)
	refused(t, err, fault.Unavailable, "canceled", "")
	checkUntouched(t, target)
}

func TestImportDamagedLayer(t *testing.T) {
	repo, commit := archive(t)
	for name, offset := range map[string]int64{"header": 1, "middle": 20000, "checksum": -6, "length": -2} {
		t.Run(name, func(t *testing.T) {
			sample.Short(t, 8)
			h := newHost(t, registry.Options{})
			ref, _ := h.push("x", legacy(t, repo, commit))
			image, err := h.lookUp(t.Context(), ref)
			if err != nil {
				t.Fatal(err)
			}
			last := image.Layers[len(image.Layers)-1]
			if err := h.registry.FlipByte(last.Digest, offset); err != nil {
				t.Fatal(err)
			}
			target := bare(t)
			_, err = h.importRef(ref, target)
			refused(t, err, fault.BadInput, last.Digest, "damaged")
			checkUntouched(t, target)
		})
	}
}

// TestImportForgedContent imports layers that match their digest but have wrong objects. Their
// checksums reveal that.
func TestImportForgedContent(t *testing.T) {
	repo, commit := archive(t)
	h := newHost(t, registry.Options{})
	forge := func(pattern string, change func([]byte) []byte) {
		t.Helper()
		names, err := filepath.Glob(filepath.Join(repo, pattern))
		if err != nil || len(names) == 0 {
			t.Fatal(pattern, err)
		}
		content, err := os.ReadFile(names[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(names[0], change(bytes.Clone(content)), 0o600); err != nil {
			t.Fatal(err)
		}
		ref, _ := h.push("x", legacy(t, repo, commit))
		target := bare(t)
		_, err = h.importRef(ref, target)
		refused(t, err, fault.BadInput, "", "")
		checkUntouched(t, target)
		if err := os.WriteFile(names[0], content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	forge("objects/*/*.filez", func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
	forge("objects/*/*.filez", func(b []byte) []byte { return b[:len(b)/2] })
	forge("objects/*/*.dirtree", func(b []byte) []byte { b[0] ^= 1; return b })
	forge("objects/*/*.commit", func(b []byte) []byte { return append(b, 0) })
}

func TestImportIncomplete(t *testing.T) {
	repo, commit := archive(t)
	names, err := filepath.Glob(filepath.Join(repo, "objects/*/*.filez"))
	if err != nil || len(names) == 0 {
		t.Fatal(err)
	}
	if err := os.Remove(names[0]); err != nil {
		t.Fatal(err)
	}
	h := newHost(t, registry.Options{})
	ref, _ := h.push("x", legacy(t, repo, commit))
	target := bare(t)
	_, err = h.importRef(ref, target)
	refused(t, err, fault.BadInput, "", "")
	checkUntouched(t, target)
}
