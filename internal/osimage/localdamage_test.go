package osimage_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"

	"machine-pivot/internal/fault"
	"machine-pivot/test/tools/sample"
)

// TestLocalDamage: damaged local images are not imported; each gives a BadInput error and
// leaves nothing behind.
func TestLocalDamage(t *testing.T) {
	repo, commit := archive(t)
	img := legacy(t, repo, commit)
	for name, c := range map[string]struct {
		transport string
		damage    func(t *testing.T, path string)
		text      string
	}{
		"oci without index":         {"oci", remove("index.json"), "index.json"},
		"oci without blobs":         {"oci", remove("blobs"), "blobs"},
		"oci with a bad index":      {"oci", func(t *testing.T, path string) { overwrite(t, filepath.Join(path, "index.json")) }, "cannot parse index.json"},
		"oci with another manifest": {"oci", changeManifest, "the manifest sha256:"},
		"oci without a layer":       {"oci", largest(os.Remove), "layer"},
		"oci with a changed layer":  {"oci", largest(flip), "layer"},
		"dir without manifest":      {"dir", remove("manifest.json"), "manifest.json"},
		"dir with a changed layer":  {"dir", largest(flip), "layer"},
		"dir with a short layer":    {"dir", largest(shorten), "layer"},
		"oci-archive cut off":       {"oci-archive", shortenAll, ""},
		"oci-archive that is none":  {"oci-archive", overwrite, ""},
		"docker-archive cut off":    {"docker-archive", shortenAll, ""},
		"docker-archive is none":    {"docker-archive", overwrite, ""},
		"oci not there":             {"oci", removeAll, "no such file"},
		"oci-archive not there":     {"oci-archive", removeAll, "no such file"},
		"dir not there":             {"dir", removeAll, "no such file"},
		"docker-archive not there":  {"docker-archive", removeAll, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			sample.Short(t, 8)
			h := newLocalHost(t)
			path := writeMedium(t, c.transport, img)
			c.damage(t, path)
			target := bare(t)
			_, err := h.importRef(parse(t, c.transport+":"+path), target)
			refused(t, err, fault.BadInput, c.text, "image")
			if !strings.Contains(err.Error(), path) {
				t.Errorf("the file is not named: %v", err)
			}
			checkUntouched(t, target)
		})
	}
}

// changeManifest replaces a layout's manifest.
func changeManifest(t *testing.T, path string) {
	t.Helper()
	index, err := layout.ImageIndexFromPath(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	overwrite(t, filepath.Join(path, "blobs/sha256", m.Manifests[0].Digest.Hex))
}

func remove(name string) func(*testing.T, string) {
	return func(t *testing.T, path string) { removeAll(t, filepath.Join(path, name)) }
}

func removeAll(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

func overwrite(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, []byte("no archive of anything\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

func shortenAll(t *testing.T, path string) {
	t.Helper()
	if err := shorten(path); err != nil {
		t.Fatal(err)
	}
}

// largest applies do to the largest file in a directory, which is the main layer.
func largest(do func(path string) error) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		var path string
		var size int64
		err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			info, err := d.Info()
			if err == nil && info.Size() > size {
				path, size = name, info.Size()
			}
			return err
		})
		if err == nil {
			err = do(path)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func shorten(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return os.Truncate(path, info.Size()/2)
}

func flip(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	content[len(content)/2] ^= 1
	return os.WriteFile(path, content, 0o600)
}
