package osimage_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/registry"
)

// forgery is an OCI layout with changed JSON documents. References to them are updated.
type forgery struct {
	t    *testing.T
	path string
}

// document is a JSON object.
type document = map[string]any

// change applies edits to the manifest and the config of the layout's only image.
func (f forgery) change(manifest, config func(document)) {
	f.t.Helper()
	var index, m, c document
	f.read("index.json", &index)
	entry := index["manifests"].([]any)[0].(document)
	f.read(blobFile(entry["digest"].(string)), &m)
	from := m["config"].(document)
	f.read(blobFile(from["digest"].(string)), &c)
	config(c)
	from["digest"], from["size"] = f.write(c)
	manifest(m)
	entry["digest"], entry["size"] = f.write(m)
	data, err := json.Marshal(index)
	if err == nil {
		err = os.WriteFile(filepath.Join(f.path, "index.json"), data, 0o600)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

func blobFile(digest string) string { return "blobs/" + strings.Replace(digest, ":", "/", 1) }

func (f forgery) read(name string, into *document) {
	f.t.Helper()
	data, err := os.ReadFile(filepath.Join(f.path, name))
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f forgery) write(d document) (digest string, size int) {
	f.t.Helper()
	data, err := json.Marshal(d)
	if err != nil {
		f.t.Fatal(err)
	}
	digest = fmt.Sprintf("sha256:%x", sha256.Sum256(data))
	if err := os.WriteFile(filepath.Join(f.path, blobFile(digest)), data, 0o600); err != nil {
		f.t.Fatal(err)
	}
	return digest, len(data)
}

// TestWrongDigests replaces the digests of an image by all kinds of invalid values. The import
// must detect them before it reads a layer, and the error must name all of them.
func TestWrongDigests(t *testing.T) {
	repo, commit := archive(t)
	img := legacy(t, repo, commit)
	manifest, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	last := len(manifest.Layers)
	layers := func(m document) []any { return m["layers"].([]any) }
	diffs := func(c document) []any { return c["rootfs"].(document)["diff_ids"].([]any) }
	keep := func(document) {}
	for name, digest := range map[string]any{
		"empty": "", "without a colon": "abc", "null": nil, "a colon": ":", "no digits": "sha256:", "few digits": "sha256:12",
		"a path": "sha256:../../../../etc/passwd", "upper case": "sha256:" + strings.Repeat("A", 64),
		"another kind": "sha512:" + strings.Repeat("0", 128), "an unknown kind": "md5:" + strings.Repeat("0", 32),
	} {
		for what, c := range map[string]struct {
			manifest, config func(document)
			text             []string
		}{
			"a layer":  {func(m document) { layers(m)[0].(document)["digest"] = digest }, keep, []string{"its manifest", "layer 1"}},
			"a config": {func(m document) { m["config"].(document)["digest"] = digest }, keep, nil},
			"a diff id": {keep, func(c document) { diffs(c)[0] = digest },
				[]string{"its config", "the content of layer 1"}},
			"all": {func(m document) {
				for _, layer := range layers(m) {
					layer.(document)["digest"] = digest
				}
			}, keep, []string{"layer 1", fmt.Sprintf("layer %d", last)}},
		} {
			t.Run(what+", "+name, func(t *testing.T) {
				sample.Short(t, 12)
				h := newLocalHost(t)
				path := writeMedium(t, "oci", img)
				forgery{t, path}.change(c.manifest, c.config)
				target := bare(t)
				_, err := h.importRef(parse(t, "oci:"+path), target)
				for _, text := range append(c.text, path) {
					refused(t, err, fault.BadInput, text, "image")
				}
				checkUntouched(t, target)
			})
		}
	}
}

// TestTooManyLayers: an image with more layers than any machine can mount is refused before
// the layers are looked at.
func TestTooManyLayers(t *testing.T) {
	repo, commit := archive(t)
	path := writeMedium(t, "oci", legacy(t, repo, commit))
	forgery{t, path}.change(func(m document) {
		first := m["layers"].([]any)[0]
		var many []any
		for range 513 {
			many = append(many, first)
		}
		m["layers"] = many
	}, func(document) {})
	_, err := newLocalHost(t).importRef(parse(t, "oci:"+path), bare(t))
	refused(t, err, fault.BadInput, "it has 513 layers, more than 512", "build the image with less in it")
}

// TestImpossibleSizes: sizes in a manifest are refused if their sum would overflow.
func TestImpossibleSizes(t *testing.T) {
	repo, commit := archive(t)
	path := writeMedium(t, "oci", legacy(t, repo, commit, oscontainer.WithLayers(2)))
	forgery{t, path}.change(func(m document) {
		for _, layer := range m["layers"].([]any) {
			layer.(map[string]any)["size"] = 1 << 62
		}
	}, func(document) {})
	_, err := newLocalHost(t).importRef(parse(t, "oci:"+path), bare(t))
	refused(t, err, fault.BadInput, "layer 1 has 4611686018427387904 bytes, more than any layer", "build the image with less in it")
}

// TestPanic makes functions panic that the import calls in various goroutines. The import must
// fail and clean up.
func TestPanic(t *testing.T) {
	repo, commit := archive(t)
	for name, prepare := range map[string]func(h *host){
		"while reading a layer": func(h *host) {
			h.report = func(p osimage.Progress) {
				if p.FetchedBytes > 0 {
					var none []int
					_ = none[p.FetchedBytes]
				}
			}
		},
		"at the end": func(h *host) {
			h.report = func(p osimage.Progress) {
				if p.Done {
					panic("index out of range")
				}
			}
		},
		"in a lookup": func(h *host) { h.puller.Log = func(string) { panic("index out of range") } },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, registry.Options{})
			ref, _ := h.push("x", legacy(t, repo, commit))
			prepare(h)
			target := bare(t)
			_, err := h.importRef(ref, target)
			refused(t, err, fault.Internal, "index out of range", "defect of pivot")
			refused(t, err, fault.Internal, "digests_test.go:", "")
			left, err := filepath.Glob(filepath.Join(target, "tmp/pivot-import-*"))
			if err != nil || len(left) > 0 {
				t.Errorf("left behind: %q, %v", left, err)
			}
		})
	}
}
