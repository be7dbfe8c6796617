package oscontainer

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math/bits"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"machine-pivot/internal/ostree/gvariant"
)

// Labels of an encapsulated image.
const (
	labelCommit = "ostree.commit"
	labelFinal  = "ostree.final-diffid"
)

// Encapsulated builds an ostree-native image from a bare-mode repository.
//
// Its first layer has the commit, all metadata objects and the content objects that are in no
// chunk. The chunk layers after it have content objects only. Any layers after these are
// derived layers, which are not part of the commit. Layers are streamed to files; reading the
// image streams them.
func Encapsulated(bareRepo, commit string, opts ...Option) (v1.Image, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	x := &export{repo: bareRepo, commit: commit, former: o.former}
	img, err := x.image(o)
	if err != nil {
		return nil, fmt.Errorf("cannot build an image of commit %s from %s: %w", commit, bareRepo, err)
	}
	return img, nil
}

func (x *export) image(o options) (v1.Image, error) {
	commit, err := x.loadCommit()
	if err != nil {
		return nil, err
	}
	base, err := x.baseLayers(o)
	if err != nil {
		return nil, err
	}
	labels := commitLabels(commit)
	labels[labelCommit] = x.commit
	labels[labelFinal] = base[len(base)-1].Layer.(*layer).diff.String()
	maps.Copy(labels, o.labels)
	created := time.Unix(int64(bits.ReverseBytes64(commit[5].(uint64))), 0).UTC()
	img, err := withConfig(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), labels, created)
	if err != nil {
		return nil, err
	}
	if img, err = mutate.Append(img, base...); err != nil {
		return nil, err
	}
	return derive(mutate.Annotations(img, present(labels)).(v1.Image), o)
}

// baseLayers writes the commit layer and the chunks.
func (x *export) baseLayers(o options) ([]mutate.Addendum, error) {
	commit, err := x.loadCommit()
	if err != nil {
		return nil, err
	}
	found := map[string][]string{}
	if err := x.content(fmt.Sprintf("%x", commit[6]), "", found); err != nil {
		return nil, err
	}
	layers := make([][]string, o.chunks+1) // content objects
	for _, checksum := range slices.Sorted(maps.Keys(found)) {
		n := o.chunkOf(checksum, found[checksum])
		layers[n] = append(layers[n], checksum)
	}
	base := make([]mutate.Addendum, len(layers))
	for n, checksums := range layers {
		file := filepath.Join(o.workDir, fmt.Sprintf("base-%d.tar", n))
		l, err := writeLayer(file, o.compression.mediaType(), o.compression, func(out io.Writer) error {
			return x.baseLayer(out, n, checksums, found, o)
		})
		if err != nil {
			return nil, err
		}
		if n == 0 {
			base[n] = addendum(l, cmp.Or(commit[3].(string), "ostree export of commit "+x.commit))
			continue
		}
		name := fmt.Sprintf("chunk-%d", n)
		base[n] = addendum(l, name)
		base[n].Annotations["ostree.components"] = name
	}
	return base, nil
}

// baseLayer writes the nth layer: the structure (first layer) or the skeleton, and then content
// objects.
func (x *export) baseLayer(out io.Writer, n int, checksums []string, found map[string][]string, o options) error {
	w := &tarWriter{out: out, prefix: o.prefix, literal: o.prefix != ""}
	x.begin(func(e Entry) error {
		entries := []Entry{e}
		if o.edit != nil {
			entries = o.edit(n, e)
		}
		for _, e := range entries {
			if err := w.write(e); err != nil {
				return err
			}
		}
		return nil
	})
	start := x.structure
	if n > 0 {
		start = x.skeleton
	}
	if err := start(); err != nil {
		return err
	}
	for _, checksum := range checksums {
		if err := x.object(checksum, found[checksum]); err != nil {
			return err
		}
	}
	return w.end()
}

// commitLabels returns the labels that repeat the commit's metadata.
func commitLabels(commit gvariant.Tuple) map[string]string {
	labels := map[string]string{}
	for _, entry := range commit[0].([]any) {
		pair := entry.(gvariant.Tuple)
		switch value := pair[1].(gvariant.Variant).Value; pair[0].(string) {
		case "version":
			labels["version"], labels["org.opencontainers.image.version"] = value.(string), value.(string)
		case "ostree.linux":
			labels["ostree.linux"] = value.(string)
		case "ostree.bootable":
			labels["ostree.bootable"], labels["containers.bootc"] = fmt.Sprint(value), "1"
		}
	}
	return labels
}

// byDirectory distributes objects over layers 0 to n by the first three levels of their
// directory, so that a change in one place changes one layer.
func byDirectory(n int) func(string, []string) int {
	return func(_ string, names []string) int {
		parts := strings.Split(path.Dir(names[0]), "/")
		sum := fnv.New32a()
		_, _ = io.WriteString(sum, path.Join(parts[:min(len(parts), 3)]...)) // never fails
		return int(sum.Sum32() % uint32(n+1))
	}
}

func swap32(n uint32) uint32 { return bits.ReverseBytes32(n) }
