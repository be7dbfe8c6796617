package main

import (
	"archive/tar"
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/sys/unix"

	"machine-pivot/ostree/gvariant"
	"machine-pivot/test/need"
	"machine-pivot/test/ostreetree"
)

// cost is what a program took. Its memory is told only by a parent that is small
// itself: a child begins with the peak of its parent.
type cost struct {
	Exit   int
	Peak   int64         // bytes of memory
	CPU    time.Duration // user and system
	Stderr string
}

// measure is the program "measure": it runs the program that its arguments are, and
// prints its cost.
func measure() {
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		panic(err)
	}
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	c := cost{cmd.ProcessState.ExitCode(), usage.Maxrss << 10, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), stderr.String()}
	if err := json.NewEncoder(os.Stdout).Encode(c); err != nil {
		panic(err)
	}
}

// hostile is an image: the files of each layer, its labels, and JSON to put in place
// of a list in its manifest or config.
type hostile struct {
	layers           [][]entry
	labels           map[string]string
	native           bool
	manifest, config func([]byte) []byte
}

// entry is a file in a layer, whose content may be large.
type entry struct {
	name    string
	size    int64
	content io.Reader
}

func file(name string, content []byte) entry {
	return entry{name, int64(len(content)), bytes.NewReader(content)}
}

// object is a metadata object with its own checksum, in a legacy image.
func object(suffix string, content []byte) entry {
	sum := fmt.Sprintf("%x", sha256.Sum256(content))
	return file("srv/repo/objects/"+sum[:2]+"/"+sum[2:]+suffix, content)
}

// layer packs entries, once.
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

// write makes an OCI layout of the image.
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

// replace puts other documents in place of config, manifest and index.
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

// put stores a blob and lets a document refer to it in place of another.
func (h hostile) put(t *testing.T, path string, document, old, blob []byte) []byte {
	t.Helper()
	sum := fmt.Sprintf("%x", sha256.Sum256(blob))
	if err := os.WriteFile(filepath.Join(path, "blobs/sha256", sum), blob, 0o600); err != nil {
		t.Fatal(err)
	}
	document = bytes.ReplaceAll(document, fmt.Appendf(nil, "%x", sha256.Sum256(old)), []byte(sum))
	return bytes.ReplaceAll(document, fmt.Appendf(nil, `"size":%d`, len(old)), fmt.Appendf(nil, `"size":%d`, len(blob)))
}

// list puts n elements at the start of the first list of this name in JSON.
func list(name, element string, n int) func([]byte) []byte {
	return func(document []byte) []byte {
		start := fmt.Appendf(nil, "%q:[", name)
		at := bytes.Index(document, start) + len(start)
		return append(append(bytes.Clone(document[:at]), strings.Repeat(element+",", n)...), document[at:]...)
	}
}

func same(document []byte) []byte { return document }

const MiB = 1 << 20

// encode is gvariant.Encode.
func encode(t *testing.T, typ string, value any) []byte {
	t.Helper()
	data, err := gvariant.Encode(typ, value)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// dirMeta is a directory's metadata.
func dirMeta(t *testing.T, xattrs any) []byte {
	return encode(t, "(uuua(ayay))", gvariant.Tuple{uint32(0), uint32(0), bits.ReverseBytes32(unix.S_IFDIR), xattrs})
}

// commitOf is a commit with metadata of a type, and a root directory.
func commitOf(t *testing.T, typ string, metadata, root []byte) []byte {
	t.Helper()
	value, err := gvariant.Open(typ, metadata)
	if err != nil {
		t.Fatal(err)
	}
	tree, meta := sha256.Sum256(root), sha256.Sum256(dirMeta(t, []any{}))
	return encode(t, "(a{sv}aya(say)sstayay)", gvariant.Tuple{
		[]any{gvariant.Tuple{"k", gvariant.Variant{Type: typ, Value: value}}},
		[]byte{}, []any{}, "", "", uint64(0), tree[:], meta[:],
	})
}

// array is a serialised array of n elements that a function makes.
func array(n int, element func(i int) []byte) []byte {
	var data []byte
	var ends []int
	for i := range n {
		data = append(data, element(i)...)
		ends = append(ends, len(data))
	}
	for _, end := range ends {
		data = binary.LittleEndian.AppendUint32(data, uint32(end))
	}
	return data
}

// attributes are n extended attributes with short names, in order.
func attributes(n int) []byte {
	return array(n, func(i int) []byte { return fmt.Appendf(nil, "%05x\x00\x06", i) })
}

// directory is a dirtree of n names.
func directory(n int, files bool) []byte {
	entries := array(n, func(i int) []byte {
		sum := sha256.Sum256(fmt.Append(nil, i))
		entry := append(fmt.Appendf(nil, "%05x\x00", i), sum[:]...)
		if files {
			return append(entry, 6)
		}
		return append(append(entry, sum[:]...), 38, 6)
	})
	if files {
		return binary.LittleEndian.AppendUint32(entries, uint32(len(entries)))
	}
	return binary.LittleEndian.AppendUint32(entries, 0)
}

// filez is a file of an archive repository with these serialised attributes.
func filez(t *testing.T, n int, xattrs []byte) entry {
	t.Helper()
	value, err := gvariant.Open("a(ayay)", xattrs)
	if err != nil {
		t.Fatal(err)
	}
	header := encode(t, "(tuuuusa(ayay))", gvariant.Tuple{uint64(0), uint32(0), uint32(0), bits.ReverseBytes32(unix.S_IFREG | 0o644), uint32(0), "", value})
	b := bytes.NewBuffer(binary.BigEndian.AppendUint32(nil, uint32(len(header))))
	b.Write(make([]byte, 4))
	b.Write(header)
	z, err := flate.NewWriter(b, flate.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return file(fmt.Sprintf("srv/repo/objects/%02x/%062x.filez", n, n), b.Bytes())
}

// TestHostileMetadata imports images whose metadata would take gigabytes if it were
// decoded. Each ends as bad input, within 150 MB of memory and seconds.
func TestHostileMetadata(t *testing.T) {
	need.Ostree(t)
	zeroes := func(n int) []byte { return make([]byte, n) }
	one := func(entries ...entry) hostile { return hostile{layers: [][]entry{entries}} }
	commit := func(typ string, metadata []byte) hostile {
		return one(object(".commit", commitOf(t, typ, metadata, nil)))
	}
	// labelled is an image about its commit, so that what that refers to is looked for.
	labelled := func(objects ...entry) hostile {
		h := one(objects...)
		sum := strings.TrimSuffix(strings.ReplaceAll(strings.TrimPrefix(objects[0].name, "srv/repo/objects/"), "/", ""), ".commit")
		h.labels = map[string]string{"com.coreos.ostree-commit": sum}
		return h
	}
	tree := func(root []byte) hostile {
		return labelled(object(".commit", commitOf(t, "ay", nil, root)), object(".dirtree", root), object(".dirmeta", dirMeta(t, []any{})))
	}
	four := func(make func(n int) []entry) (h hostile) {
		for n := range 4 {
			h.layers = append(h.layers, make(n))
		}
		return h
	}
	for name, c := range map[string]struct {
		image func() hostile
		text  string
	}{
		"booleans of 32 MiB": {func() hostile { return commit("ab", zeroes(32*MiB)) }, "more than 16777216"},
		"pairs of 120 MiB":   {func() hostile { return commit("a(yy)", zeroes(120*MiB)) }, "more than 16777216"},
		"booleans":           {func() hostile { return commit("ab", zeroes(15*MiB)) }, "missing"},
		"pairs":              {func() hostile { return commit("a(yy)", zeroes(15*MiB)) }, "missing"},
		"empty arrays":       {func() hostile { return commit("aay", zeroes(15*MiB)) }, "missing"},
		"units":              {func() hostile { return commit("a()", zeroes(15*MiB)) }, "missing"},
		"strings": {func() hostile {
			return commit("as", array(3*MiB, func(int) []byte { return []byte{0} }))
		}, "missing"},
		"variants": {func() hostile {
			padded := append(zeroes(5), 0, 0, 'y') // each at a multiple of 8
			return commit("av", array(MiB, func(i int) []byte { return padded[min(i, 1)*-5+5:] }))
		}, "missing"},
		"entries": {func() hostile {
			padded := []byte("\x00\x00\x00\x00k\x00\x00\x00\x00\x00\x00\x00\x01\x00y\x02")
			return one(object(".commitmeta", array(MiB*3/4, func(i int) []byte { return padded[min(i, 1)*-4+4:] })))
		}, "missing"},
		"four at once": {func() hostile {
			return four(func(n int) []entry {
				return []entry{object(".commit", commitOf(t, "ab", zeroes(15*MiB-n), nil)), object(".commit", commitOf(t, "ab", zeroes(14*MiB-n), nil))}
			})
		}, "missing"},
		"a directory of files":       {func() hostile { return tree(directory(370_000, true)) }, "missing"},
		"a directory of directories": {func() hostile { return tree(directory(200_000, false)) }, "missing"},
		"attributes of a directory": {func() hostile {
			return one(object(".dirmeta", dirMeta(t, raw(t, "a(ayay)", attributes(MiB)))))
		}, "names of its extended attributes"},
		"attributes of files": {func() hostile {
			return four(func(n int) (all []entry) {
				for i := range 20 {
					all = append(all, filez(t, n*20+i, attributes(95_000)))
				}
				return all
			})
		}, "names of its extended attributes"},
		"sets of attributes": {func() hostile {
			h := four(func(n int) (all []entry) {
				for i := range 16 {
					set := append(zeroes(MiB-1), byte(n*16+i))
					sum := fmt.Sprintf("%x", sha256.Sum256(set))
					all = append(all, file("sysroot/ostree/repo/objects/"+sum[:2]+"/"+sum[2:]+".file-xattrs", set))
				}
				return all
			})
			h.native = true
			return h
		}, "bytes of extended attributes that files refer to"},
		"a manifest of layers": {func() hostile {
			h := one(file("x", nil))
			h.manifest, h.config = list("layers", "{}", 1_300_000), same
			return h
		}, "more than 131072 parts"},
		"a config of history": {func() hostile {
			h := one(file("x", nil))
			h.manifest, h.config = same, list("history", "{}", 1_300_000)
			return h
		}, "more than 131072 parts"},
	} {
		t.Run(name, func(t *testing.T) {
			h := c.image()
			path, repo := h.write(t), filepath.Join(t.TempDir(), "repo")
			if err := ostreetree.Init(repo, "bare"); err != nil {
				t.Fatal(err)
			}
			out, err := exec.Command("measure", "pivot", "image", "import", "oci:"+path, "--repo", repo).Output()
			var got cost
			if err := errors.Join(err, json.Unmarshal(out, &got)); err != nil {
				t.Fatal(err)
			}
			t.Logf("exit %d, %d MB, %s: %s", got.Exit, got.Peak/1e6, got.CPU, got.Stderr)
			if got.Exit != 65 || got.Peak > 150e6 || got.CPU > 10*time.Second || !strings.Contains(got.Stderr, c.text) {
				t.Errorf("want exit 65 with %q, at most 150 MB and 10 s of a processor", c.text)
			}
		})
	}
}

// raw is a serialised value.
func raw(t *testing.T, typ string, data []byte) gvariant.Value {
	t.Helper()
	v, err := gvariant.Open(typ, data)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
