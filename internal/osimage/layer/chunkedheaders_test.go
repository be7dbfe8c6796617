package layer_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/layer"
)

// TestMadeHeaders: with headers made from the table an archive has the same entries, whatever of it is on
// the host, and no skeleton is fetched.
func TestMadeHeaders(t *testing.T) {
	for form, l := range map[string]blobLayer{"with a skeleton": newBlobLayer(t, 60), "without": newBlobLayer(t, 60).withoutSkeleton()} {
		want := entriesOf(t, l.archive)
		for _, one := range []int{1, 2, 3, 7, 1000} { // of how many files the host lacks one
			for _, cost := range []int64{0, 300, 20_000, 1 << 40} {
				got, err := l.readObjects(one, cost)
				if err != nil {
					t.Fatalf("%s, one of %d, cost %d: %v", form, one, cost, err)
				}
				if entries := entriesOf(t, got); !slices.Equal(entries, want) {
					t.Errorf("%s, one of %d, cost %d: %d entries, want %d", form, one, cost, len(entries), len(want))
				}
			}
		}
	}
}

// TestBadHeaders: a table with entries that cannot be headers is damaged.
func TestBadHeaders(t *testing.T) {
	for name, entry := range map[string]string{
		"name with NUL": `{"type":"symlink","name":"a\u0000b"}`,
		"no list":       `7`,
	} {
		table := `{"entries":[` + entry + `]}`
		blob, annotations := assemble([]byte("frames"), []byte(table), nil)
		l := blobLayer{blob: blob, annotations: annotations}
		if got, err := l.readObjects(1, 0); fault.KindOf(err) != fault.BadInput {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
}

// TestChunkedMemory: several layers are read at once, so a layer's headers take no window of memory, although builders reserve
// one of 8 MiB. They are made, or read from a skeleton. What is counted is what the parsers leave as garbage, too.
func TestChunkedMemory(t *testing.T) {
	l := newBlobLayer(t, 1000, 1)
	all := func(string) bool { return true }
	for form, read := range map[string]func() ([]byte, error){
		"a skeleton":   func() ([]byte, error) { data, _, err := l.read(all, 0); return data, err },
		"made headers": func() ([]byte, error) { return l.readObjects(1<<20, 0) },
	} {
		allocated := testing.Benchmark(func(b *testing.B) {
			for b.Loop() {
				if _, err := read(); err != nil {
					b.Fatal(err)
				}
			}
		}).AllocedBytesPerOp()
		if limit := int64(16 << 20); allocated > limit {
			t.Errorf("%s: %d bytes for %d of an archive, want at most %d", form, allocated, len(l.archive), limit)
		}
	}
}

// readObjects reads the archive with made headers. The host lacks one of so many files.
func (l blobLayer) readObjects(one int, cost int64) ([]byte, error) {
	at, _, err := layer.LocateChunked(l.annotations, int64(len(l.blob)))
	if err != nil {
		return nil, err
	}
	at = at.OfObjects()
	var fetched int64
	h, n := host{}, 0
	contents, err := layer.ReadChunked(at, l.fetch(at.Spans(), &fetched), h.find(l, func(string) bool { n++; return n%one != 0 }))
	if err != nil {
		return nil, err
	}
	plan := contents.Plan(cost)
	stream, err := plan.Archive("not compared", l.fetch(plan.Spans, &fetched), h.open)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(stream)
	return data, errors.Join(err, stream.Close())
}

// entriesOf lists what an object's checksum covers of the entries of an archive.
func entriesOf(t *testing.T, archive []byte) (entries []string) {
	t.Helper()
	r := tar.NewReader(bytes.NewReader(archive))
	for {
		h, err := r.Next()
		if err == io.EOF {
			return entries
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, fmt.Sprintf("%c %s %s %o %d:%d %x", h.Typeflag, h.Name, h.Linkname, h.Mode, h.Uid, h.Gid, body))
	}
}
