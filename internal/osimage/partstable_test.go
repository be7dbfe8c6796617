package osimage_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"
)

// TestPartsOfIncompleteTable: if a layer's table lists less than the layer has, its layer is fetched whole.
func TestPartsOfIncompleteTable(t *testing.T) {
	w := newPartsWorld(t)
	w.run(t, "incomplete table", 1, []string{"encapsulated"}, nil, func(c *partsCase) {
		ref, _ := c.push("incomplete", c.withoutAnObject())
		repo, made := c.repo(), ""
		for range 2 { // the second time with the refs that the first has left
			result, err := c.importRef(ref, repo)
			if err != nil {
				c.t.Fatal(err)
			}
			made = result.Commit
		}
		if text := c.logged(); strings.Count(text, "layers are fetched whole, although the machine has parts of them") != 1 {
			c.t.Errorf("log:\n%s", text)
		}
		c.updates(repo, c.ref, c.want)
		if c.treeOf(repo, made) != c.treeOf(repo, c.want) {
			c.t.Error("the commit has another tree")
		}
	})
}

// withoutAnObject returns the second image with another table for its largest layer, which does not list one of
// the objects that the first image does not have.
func (c *partsCase) withoutAnObject() v1.Image {
	c.t.Helper()
	largest := largestLayer(c.t, c.second)
	manifest, err := c.second.Manifest()
	c.before.must(err)
	layers, err := c.second.Layers()
	c.before.must(err)
	config, err := c.second.ConfigFile()
	c.before.must(err)
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for n, l := range layers {
		of := manifest.Layers[n]
		add := mutate.Addendum{Layer: l, Annotations: of.Annotations, MediaType: of.MediaType}
		if of.Digest.String() == largest {
			blob, err := l.Compressed()
			c.before.must(err)
			data, err := io.ReadAll(blob)
			c.before.must(err)
			data, add.Annotations = c.shorten(data, of.Annotations)
			add.Layer = static.NewLayer(data, of.MediaType)
		}
		img, err = mutate.Append(img, add)
		c.before.must(err)
	}
	img, err = mutate.Config(img, config.Config)
	c.before.must(err)
	return img
}

// shorten appends a table to a blob that lacks an object with its extended attributes, and returns the annotations
// for it.
func (c *partsCase) shorten(blob []byte, annotations map[string]string) ([]byte, map[string]string) {
	c.t.Helper()
	const prefix = "io.github.containers.zstd-chunked."
	var at, length, size, kind int
	_, err := fmt.Sscanf(annotations[prefix+"manifest-position"], "%d:%d:%d:%d", &at, &length, &size, &kind)
	c.before.must(err)
	decoder, err := zstd.NewReader(nil)
	c.before.must(err)
	defer decoder.Close()
	text, err := decoder.DecodeAll(blob[at:at+length], nil)
	c.before.must(err)
	var table map[string]json.RawMessage
	c.before.must(json.Unmarshal(text, &table))
	var entries []map[string]any
	c.before.must(json.Unmarshal(table["entries"], &entries))
	table["entries"], err = json.Marshal(c.leaveOut(entries))
	c.before.must(err)
	text, err = json.Marshal(table)
	c.before.must(err)
	encoder, err := zstd.NewWriter(nil)
	c.before.must(err)
	packed := encoder.EncodeAll(text, nil)
	blob = binary.LittleEndian.AppendUint32(bytes.Clone(blob), 0x184D2A50) // a frame that decoders skip
	blob = binary.LittleEndian.AppendUint32(blob, uint32(len(packed)))
	return append(blob, packed...), map[string]string{
		prefix + "manifest-checksum": fmt.Sprintf("sha256:%x", sha256.Sum256(packed)),
		prefix + "manifest-position": fmt.Sprintf("%d:%d:%d:1", len(blob), len(packed), len(text)),
	}
}

// leaveOut removes the entries of one object that the first image does not have.
func (c *partsCase) leaveOut(entries []map[string]any) []map[string]any {
	c.t.Helper()
	for _, e := range entries {
		name, is := strings.CutSuffix(e["name"].(string), ".file")
		object := strings.TrimPrefix(name, "sysroot/ostree/repo/")
		if _, err := os.Stat(filepath.Join(c.updated, object+".file")); !is || err == nil {
			continue
		}
		return slices.DeleteFunc(entries, func(e map[string]any) bool { return strings.HasPrefix(e["name"].(string), name+".") })
	}
	c.t.Fatal("no object is new")
	return nil
}

// treeOf returns the listing of a commit with all checksums.
func (c *partsCase) treeOf(repo, commit string) string {
	c.t.Helper()
	return ostreeTool(c.t, "ls", "--repo="+repo, "-RCX", commit)
}
