package layer_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"go.podman.io/image/v5/pkg/compression"

	"machine-pivot/internal/osimage/layer"
	"machine-pivot/internal/ostree"
	"machine-pivot/test/tools/sample"
)

// layer is a layer as podman writes it.
type blobLayer struct {
	archive, blob []byte
	annotations   map[string]string
	contents      map[string][]byte
}

// newBlobLayer returns a layer with files of some sizes in bytes, or of many, and all that may be between them.
func newBlobLayer(t testing.TB, files int, sizes ...int) blobLayer {
	t.Helper()
	if len(sizes) == 0 {
		sizes = []int{1, 511, 512, 513, 10_000, 300_000}
	}
	random := rand.New(rand.NewPCG(1, 2))
	l := blobLayer{annotations: map[string]string{}, contents: map[string][]byte{}}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	add := func(h tar.Header, body []byte) {
		h.Size, h.Mode = int64(len(body)), 0o644
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(body); err != nil {
			t.Fatal(err)
		}
		l.contents[h.Name] = body
	}
	for n := range files {
		name := fmt.Sprintf("usr/dir-%d/file-%d", n/10, n)
		body := make([]byte, sizes[random.IntN(len(sizes))])
		for i := range body {
			body[i] = byte(random.IntN(64)) // can be compressed
		}
		if n%17 == 0 {
			clear(body[len(body)/2:]) // a chunk of zeros
		}
		add(tar.Header{Name: name, Typeflag: tar.TypeReg}, body)
		switch n % 5 {
		case 0:
			add(tar.Header{Name: name + "-link", Typeflag: tar.TypeSymlink, Linkname: name}, nil)
		case 1:
			add(tar.Header{Name: name + "-too", Typeflag: tar.TypeLink, Linkname: name}, nil)
		case 2:
			add(tar.Header{Name: name + "-empty", Typeflag: tar.TypeReg}, nil)
		case 3:
			add(tar.Header{Name: name + "-ä", Typeflag: tar.TypeReg, PAXRecords: map[string]string{"SCHILY.xattr.user.x": "1"}}, []byte("pax"))
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	l.archive = archive.Bytes()
	l.compress(t)
	return l
}

// compress compresses the archive.
func (l *blobLayer) compress(t testing.TB) {
	t.Helper()
	var blob bytes.Buffer
	fastest := 1 // the default level takes 70 MB
	z, err := compression.CompressStreamWithMetadata(&blob, l.annotations, compression.ZstdChunked, &fastest)
	if err == nil {
		_, err = z.Write(l.archive)
	}
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	l.blob = blob.Bytes()
}

// withoutSkeleton returns the layer as older builders describe it.
func (l blobLayer) withoutSkeleton() blobLayer {
	annotations := map[string]string{}
	for key, value := range l.annotations {
		if key != "io.github.containers.zstd-chunked.tarsplit-position" {
			annotations[key] = value
		}
	}
	l.annotations = annotations
	return l
}

// fetch returns spans of the blob, and counts their bytes.
func (l blobLayer) fetch(spans []layer.Span, count *int64) io.ReadCloser {
	var all []io.Reader
	for _, s := range spans {
		all = append(all, bytes.NewReader(l.blob[s.From:s.To]))
		*count += s.To - s.From
	}
	return io.NopCloser(io.MultiReader(all...))
}

// host has contents of a layer as objects, with the checksums of the contents.
type host map[ostree.ObjectName][]byte

// find is for layer.ReadChunked. It finds a content of the layer if has says so.
func (h host) find(l blobLayer, has func(name string) bool) func(layer.ChunkedFile) (ostree.ObjectName, bool) {
	return func(f layer.ChunkedFile) (ostree.ObjectName, bool) {
		n := ostree.ObjectName{Checksum: f.Digest, Type: ostree.File}
		if !has(f.Name) {
			return ostree.ObjectName{}, false
		}
		h[n] = l.contents[f.Name]
		return n, true
	}
}

func (h host) open(n ostree.ObjectName) (io.ReadCloser, error) {
	body, found := h[n]
	if !found {
		return nil, errors.New("not there")
	}
	return io.NopCloser(bytes.NewReader(body)), nil
}

// read reads the archive by parts, and returns the number of fetched bytes too.
func (l blobLayer) read(has func(name string) bool, cost int64) (archive []byte, fetched int64, err error) {
	at, found, err := layer.LocateChunked(l.annotations, int64(len(l.blob)))
	if err != nil || !found {
		return nil, 0, fmt.Errorf("not found: %w", err)
	}
	h := host{}
	contents, err := layer.ReadChunked(at, l.fetch(at.Spans(), &fetched), h.find(l, has))
	if err != nil {
		return nil, fetched, err
	}
	plan := contents.Plan(cost)
	stream, err := plan.Archive(l.diffID(), l.fetch(plan.Spans, &fetched), h.open)
	if err != nil {
		return nil, fetched, err
	}
	archive, err = io.ReadAll(stream)
	return archive, fetched, errors.Join(err, stream.Close())
}

// TestChunkedArchive: whatever the host has, and whatever a span costs, the archive is the same.
func TestChunkedArchive(t *testing.T) {
	l := newBlobLayer(t, 100)
	random := rand.New(rand.NewPCG(3, 4))
	for form, l := range map[string]blobLayer{"with a skeleton": l, "without": l.withoutSkeleton()} {
		for _, percent := range []int{0, 5, 50, 95, 100} {
			last := int64(0)
			for _, cost := range []int64{0, 300, 20_000, 1 << 40} {
				got, fetched, err := l.read(func(string) bool { return random.IntN(100) < percent }, cost)
				if err != nil || !bytes.Equal(got, l.archive) {
					t.Errorf("%s, %d %% local, cost %d: %v, %d of %d bytes", form, percent, cost, err, len(got), len(l.archive))
				}
				if percent == 100 && cost == 300 && fetched > int64(len(l.blob)/10) {
					t.Errorf("%s: fetched %d of %d bytes, although all is local", form, fetched, len(l.blob))
				}
				if percent == 0 && fetched > int64(len(l.blob)) {
					t.Errorf("%s: fetched %d of %d bytes", form, fetched, len(l.blob))
				}
				last = max(last, fetched)
			}
			if percent < 100 && last == 0 {
				t.Errorf("%s: nothing fetched", form)
			}
		}
	}
}

// TestChunkedSpans: neighbours are fetched together, and a span has no byte that is not needed unless that
// saves a span.
func TestChunkedSpans(t *testing.T) {
	l := newBlobLayer(t, 100)
	at, _, err := layer.LocateChunked(l.annotations, int64(len(l.blob)))
	if err != nil {
		t.Fatal(err)
	}
	spans := func(cost int64) (spans int, size int64) {
		var fetched int64
		has := func(name string) bool { return len(l.contents[name])%2 == 0 }
		contents, err := layer.ReadChunked(at, l.fetch(at.Spans(), &fetched), host{}.find(l, has))
		if err != nil {
			t.Fatal(err)
		}
		plan := contents.Plan(cost)
		for n, s := range plan.Spans {
			if s.From >= s.To || n > 0 && plan.Spans[n-1].To >= s.From {
				t.Errorf("cost %d: span %d is %v after %v", cost, n, s, plan.Spans[max(n-1, 0)])
			}
		}
		return len(plan.Spans), plan.Bytes
	}
	many, least := spans(0)
	few, more := spans(5000)
	one, most := spans(1 << 40)
	if many <= few || few <= one || one != 1 || least >= more || more >= most {
		t.Errorf("%d spans of %d bytes, %d of %d, %d of %d", many, least, few, more, one, most)
	}
	if limit := least + int64(many-few)*5000; more > limit {
		t.Errorf("%d bytes fetched to save %d spans", more-least, many-few)
	}
}

// TestChunkedDamage: a damaged part never gives another archive without an error, since these frames have
// checksums.
func TestChunkedDamage(t *testing.T) {
	whole := newBlobLayer(t, 30)
	has := func(name string) bool { return len(name)%2 == 0 }
	for _, l := range []blobLayer{whole, whole.withoutSkeleton()} {
		for at := 0; at < len(l.blob); at += sample.Step(7) * (1 + len(l.blob)/500) {
			d := l
			d.blob = bytes.Clone(l.blob)
			d.blob[at] ^= 0x10
			got, _, err := d.read(has, 300)
			if err == nil && !bytes.Equal(got, l.archive) {
				t.Errorf("byte %d of %d: another archive, of %d bytes", at, len(l.blob), len(got))
			}
		}
		d := l
		d.blob = l.blob[:len(l.blob)/2]
		if _, _, err := d.read(has, 300); err == nil {
			t.Error("a table behind the end of the blob")
		}
	}
}

// TestChunkedLocalChanges: an object that has become shorter, or cannot be opened, is an error.
func TestChunkedLocalChanges(t *testing.T) {
	l := newBlobLayer(t, 10)
	at, _, err := layer.LocateChunked(l.annotations, int64(len(l.blob)))
	if err != nil {
		t.Fatal(err)
	}
	for name, open := range map[string]func(host) func(ostree.ObjectName) (io.ReadCloser, error){
		"shorter": func(h host) func(ostree.ObjectName) (io.ReadCloser, error) {
			return func(n ostree.ObjectName) (io.ReadCloser, error) {
				return io.NopCloser(bytes.NewReader(h[n][1:])), nil
			}
		},
		"gone": func(host) func(ostree.ObjectName) (io.ReadCloser, error) { return host{}.open },
	} {
		var fetched int64
		h := host{}
		contents, err := layer.ReadChunked(at, l.fetch(at.Spans(), &fetched), h.find(l, func(string) bool { return true }))
		if err != nil {
			t.Fatal(err)
		}
		plan := contents.Plan(0)
		stream, err := plan.Archive(l.diffID(), l.fetch(plan.Spans, &fetched), open(h))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(stream); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func (l blobLayer) diffID() string { return fmt.Sprintf("sha256:%x", sha256.Sum256(l.archive)) }
