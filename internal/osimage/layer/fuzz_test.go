package layer_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/layer"
)

// FuzzMerge builds layers of a few names in any order, and compares the merged tree with a model that consists of paths
// only. No file is lost, and none appears that no layer has.
func FuzzMerge(f *testing.F) {
	f.Add([]byte("\x00\x01\x02\x03"))
	f.Add([]byte{0, 5, 1, 7, 13, 20, 255, 3, 9, 2, 255, 6, 6, 30, 31, 32})
	f.Add([]byte{10, 60, 110, 160, 255, 210, 12, 62, 112, 255, 162, 212, 14, 64})
	f.Fuzz(func(t *testing.T, data []byte) {
		store := newMemory()
		tree, want := layer.NewPlainTree(store), newModel()
		layers := append([][]item{system()}, itemsOf(data)...)
		for _, items := range layers {
			l, err := read(t, store, items)
			modelErr := want.add(items)
			if (err != nil) != (modelErr != nil) {
				t.Fatalf("layer %v: %v, the model has %v", items, err, modelErr)
			}
			if err == nil {
				err = tree.Add(l)
			}
			if err != nil {
				if fault.KindOf(err) != fault.BadInput {
					t.Fatalf("layer %v: %v", items, err)
				}
				return
			}
		}
		result, err := tree.Finish(t.Context(), nil)
		if fault.KindOf(err) == fault.Refused {
			return // the kernel was removed
		}
		if err != nil {
			t.Fatal(err)
		}
		got := store.paths(result.Root, "", map[string]string{})
		if !maps.Equal(got, want.paths) {
			t.Errorf("layers %v\nmerged to %v\nthe model has %v", layers, got, want.paths)
		}
		if len(result.Layers) != len(layers) {
			t.Errorf("%d layers of %d", len(result.Layers), len(layers))
		}
	})
}

// item is an entry of a layer.
type item struct {
	name, content string
	kind          byte
}

// system returns the layer with the files that every bootable tree must have.
func system() []item {
	return []item{{"usr/lib/modules/1/vmlinuz", "kernel", tar.TypeReg}, {"usr/lib/os-release", "ID=x\n", tar.TypeReg}}
}

// itemsOf makes layers from fuzz data; the byte 255 starts a new layer.
func itemsOf(data []byte) [][]item {
	dirs := []string{"usr/a/", "usr/a/b/", "etc/", "opt/", "usr/lib/", "run/"}
	names := []string{"a", "b", ".wh.a", ".wh.b", ".wh..wh..opq", "-", ".wh.-", "modules"}
	layers := [][]item{{}}
	for n, b := range data {
		if b == 255 {
			layers = append(layers, nil)
			continue
		}
		name := dirs[int(b)%len(dirs)] + names[int(b)/len(dirs)%len(names)]
		kind := []byte{tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeReg, tar.TypeReg}[(int(b)+n)%5]
		last := &layers[len(layers)-1]
		*last = append(*last, item{name, fmt.Sprintf("content %d", n), kind})
	}
	return layers
}

// read reads a layer with package layer.
func read(t *testing.T, store *memory, items []item) (*layer.Layer, error) {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, i := range items {
		h := &tar.Header{Name: i.name, Typeflag: i.kind, Mode: 0o755}
		switch i.kind {
		case tar.TypeReg:
			h.Size = int64(len(i.content))
		case tar.TypeSymlink:
			h.Linkname = i.content
		case tar.TypeDir:
			h.Name += "/"
		}
		err := w.WriteHeader(h)
		if err == nil && i.kind == tar.TypeReg {
			_, err = io.WriteString(w, i.content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	diff := fmt.Sprintf("sha256:%x", sha256.Sum256(out.Bytes()))
	d := layer.NewDerived(store, func(string, uint32) string { return "" })
	err := layer.Read(context.Background(), io.NopCloser(&out), diff, d, layer.NewShared())
	return d.Layer, err
}

// model is a tree as a set of paths, with a simple implementation of the rules.
type model struct{ paths map[string]string }

func newModel() *model { return &model{map[string]string{}} }

func (m *model) add(items []item) error {
	own := map[string]string{}
	for _, i := range items {
		if err := place(own, i); err != nil {
			return err
		}
	}
	for _, at := range slices.Sorted(maps.Keys(own)) {
		dir, name := path.Split(at)
		gone, ok := strings.CutPrefix(name, ".wh.")
		switch {
		case !ok || !strings.HasPrefix(own[at], "content"):
		case gone == ".wh..opq":
			m.removeBelow(dir)
		case !strings.HasPrefix(gone, ".wh."):
			delete(m.paths, dir+gone)
			m.removeBelow(dir + gone + "/")
		}
	}
	for _, at := range slices.Sorted(maps.Keys(own)) { // directories before their content
		if strings.HasPrefix(path.Base(at), ".wh.") && strings.HasPrefix(own[at], "content") {
			continue
		}
		if own[at] != "directory" {
			m.removeBelow(at + "/")
		}
		m.paths[at] = own[at]
	}
	return nil
}

// place adds one entry to the paths of a layer.
func place(own map[string]string, i item) error {
	at := i.name
	if top, _, _ := strings.Cut(at, "/"); top == "run" {
		return nil
	} else if top == "etc" {
		at = "usr/" + at
	}
	for dir := path.Dir(at); dir != "."; dir = path.Dir(dir) {
		if have, ok := own[dir]; ok && have != "directory" {
			return errors.New("below a file")
		}
		own[dir] = "directory"
	}
	content := map[byte]string{tar.TypeReg: i.content, tar.TypeDir: "directory", tar.TypeSymlink: "-> " + i.content}[i.kind]
	if have, ok := own[at]; ok && (have == "directory") != (content == "directory") {
		return errors.New("a directory and a file")
	}
	own[at] = content
	return nil
}

func (m *model) removeBelow(dir string) {
	maps.DeleteFunc(m.paths, func(at, _ string) bool { return strings.HasPrefix(at, dir) })
}
