package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// hostile describes an image: the files of each layer, its labels, and replacements for lists
// in the JSON of its manifest or config.
type hostile struct {
	layers           [][]entry
	labels           map[string]string
	native           bool
	manifest, config func([]byte) []byte
}

// entry is a file in a layer. Its content may be large.
type entry struct {
	name    string
	size    int64
	content io.Reader
}

func file(name string, content []byte) entry {
	return entry{name, int64(len(content)), bytes.NewReader(content)}
}

// object returns a metadata object with a valid checksum, in a legacy image.
func object(suffix string, content []byte) entry {
	sum := fmt.Sprintf("%x", sha256.Sum256(content))
	return file("srv/repo/objects/"+sum[:2]+"/"+sum[2:]+suffix, content)
}

// layer packs entries into a layer, once.
func layer(t *testing.T, entries []entry) v1.Layer {
	t.Helper()
	var plain bytes.Buffer
	w := tar.NewWriter(&plain)
	for _, e := range entries {
		err := w.WriteHeader(&tar.Header{Name: e.name, Size: e.size, Mode: 0o644, Typeflag: tar.TypeReg})
		if err == nil {
			_, err = io.Copy(w, e.content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(plain.Bytes())), nil
	}, tarball.WithCompressionLevel(1))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// write writes the image as an OCI layout.
func (h hostile) write(t *testing.T) string {
	t.Helper()
	img := v1.Image(empty.Image)
	last := ""
	for _, entries := range h.layers {
		l := layer(t, entries)
		id, err := l.DiffID()
		if err == nil {
			img, err = mutate.AppendLayers(img, l)
		}
		if err != nil {
			t.Fatal(err)
		}
		last = id.String()
	}
	labels := h.labels
	if labels == nil {
		labels = map[string]string{"com.coreos.ostree-commit": strings.Repeat("0", 64)}
	}
	if h.native {
		labels = map[string]string{"ostree.final-diffid": last}
	}
	img, err := mutate.Config(img, v1.Config{Labels: labels})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "image")
	oci, err := layout.Write(path, empty.Index)
	if err == nil {
		err = oci.AppendImage(img)
	}
	if err != nil {
		t.Fatal(err)
	}
	if h.config != nil {
		h.replace(t, path, img)
	}
	return path
}

// replace replaces config, manifest and index.
func (h hostile) replace(t *testing.T, path string, img v1.Image) {
	t.Helper()
	config, err := img.RawConfigFile()
	manifest, err2 := img.RawManifest()
	index, err3 := os.ReadFile(filepath.Join(path, "index.json"))
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	manifest = h.put(t, path, manifest, config, h.config(config))
	old, err := img.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	index = h.put(t, path, index, old, h.manifest(manifest))
	if err := os.WriteFile(filepath.Join(path, "index.json"), index, 0o600); err != nil {
		t.Fatal(err)
	}
}

// put stores a blob and replaces a reference in a document by one to it.
func (h hostile) put(t *testing.T, path string, document, old, blob []byte) []byte {
	t.Helper()
	sum := fmt.Sprintf("%x", sha256.Sum256(blob))
	if err := os.WriteFile(filepath.Join(path, "blobs/sha256", sum), blob, 0o600); err != nil {
		t.Fatal(err)
	}
	document = bytes.ReplaceAll(document, fmt.Appendf(nil, "%x", sha256.Sum256(old)), []byte(sum))
	return bytes.ReplaceAll(document, fmt.Appendf(nil, `"size":%d`, len(old)), fmt.Appendf(nil, `"size":%d`, len(blob)))
}

// list returns a function that inserts n elements at the start of the first list with this name
// in a JSON text.
func list(name, element string, n int) func([]byte) []byte {
	return func(document []byte) []byte {
		start := fmt.Appendf(nil, "%q:[", name)
		at := bytes.Index(document, start) + len(start)
		return append(append(bytes.Clone(document[:at]), strings.Repeat(element+",", n)...), document[at:]...)
	}
}

func same(document []byte) []byte { return document }
