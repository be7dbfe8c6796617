package layer

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"machine-pivot/internal/ostree"
)

// countingSink reads the objects that it receives and counts them by file.
type countingSink struct {
	fakeSink
	limit int64 // the maximum size of an object
	files map[ostree.Checksum]int
}

func newCountingSink(limit int) *countingSink {
	return &countingSink{limit: int64(limit), files: map[ostree.Checksum]int{}}
}

func (s *countingSink) count(c ostree.Checksum, body io.Reader) error {
	n, err := io.Copy(io.Discard, body)
	if err != nil {
		return err
	}
	if n > s.limit {
		return fmt.Errorf("an object of %d bytes out of %d", n, s.limit)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[c]++
	return nil
}

func (s *countingSink) AddMetadata(_ context.Context, n ostree.ObjectName, body io.Reader) error {
	if n.Type == ostree.File {
		return fmt.Errorf("%s as metadata", n)
	}
	return s.count(ostree.Checksum{}, body)
}

func (s *countingSink) AddArchiveFile(_ context.Context, c ostree.Checksum, body io.Reader) error {
	return s.count(c, body)
}

func (s *countingSink) AddFile(_ context.Context, c ostree.Checksum, _ ostree.FileInfo, body io.Reader) error {
	return s.count(c, body)
}

// signed sets the checksums of headers. Otherwise nearly all mutated headers would be rejected
// because of them.
func signed(data []byte) []byte {
	const block, field, magic = 512, 148, 257
	data = bytes.Clone(data)
	for at := 0; at+block <= len(data); at += block {
		header := data[at : at+block]
		if !bytes.HasPrefix(header[magic:], []byte("ustar")) {
			continue
		}
		copy(header[field:], "        ")
		sum := 0
		for _, c := range header {
			sum += int(c)
		}
		copy(header[field:], fmt.Sprintf("%06o\x00 ", sum))
	}
	return data
}

// FuzzLegacy: the reader returns or fails with an error for any tar stream, and refs stay within
// their limits.
func FuzzLegacy(f *testing.F) {
	for _, headers := range [][]tar.Header{
		{{Name: objectPath("aa", ".commit"), Size: 5}, {Name: "./" + objectPath("bb", ".filez"), Size: 700}},
		{{Name: legacyHeads + "a/b", PAXRecords: map[string]string{"TEST.content": "xyz\n"}}, {Name: legacyHeads + ".wh.c"}},
		{{Name: objectPath("aa", ".filez"), Typeflag: tar.TypeLink, Linkname: "x"}},
		{{Name: "dev/null", Typeflag: tar.TypeChar}, {Name: strings.Repeat("long/", 60), Typeflag: tar.TypeDir}},
	} {
		f.Add(tarOf(f, headers...))
	}
	shared := NewShared() // if a buffer is not returned, the fuzzing blocks in the end
	f.Fuzz(func(t *testing.T, data []byte) {
		sink := newCountingSink(len(data))
		r := NewLegacy(sink)
		if err := readTar(t.Context(), bytes.NewReader(signed(data)), shared, r); err != nil {
			return
		}
		if r.objects != (len(sink.files) > 0) {
			t.Errorf("objects %v, but the sink has %d", r.objects, len(sink.files))
		}
		for name, h := range r.heads {
			if len(name) > maxRefLength || len(h.content) > maxRefLength || h.hidden && h.content != "" {
				t.Errorf("ref %q: %+v", name, h)
			}
		}
	})
}

// FuzzNative: the files that are reported for a layer of an ostree-native container are those
// that the sink received, each object once.
func FuzzNative(f *testing.F) {
	for _, headers := range [][]tar.Header{
		{{Name: nativePath("aa", ".commit"), Size: 5}, {Name: nativePath("bb", ".dirmeta"), Size: 12}},
		{{Name: nativePath("11", ".file-xattrs-link")}, {Name: nativePath("11", ".file"), Size: 7, Mode: 0o4755}},
		{withContent(tar.Header{Name: xattrsPath("old")}, "old"),
			{Name: nativePath("11", ".file-xattrs-link"), Typeflag: tar.TypeLink, Linkname: xattrsPath("old")},
			{Name: nativePath("11", ".file"), Typeflag: tar.TypeSymlink, Linkname: "../x"}},
		{{Name: nativePath("11", ".file-xattrs-link")}, {Name: nativePath("11", ".file"), Typeflag: tar.TypeChar}},
	} {
		f.Add(true, tarOf(f, headers...))
		f.Add(false, tarOf(f, headers...))
	}
	shared := NewShared()
	f.Fuzz(func(t *testing.T, first bool, data []byte) {
		sink := newCountingSink(len(data))
		n := NewNative(sink, first)
		if err := readTar(t.Context(), bytes.NewReader(signed(data)), shared, n); err != nil || n.ended() != nil {
			return
		}
		delete(sink.files, ostree.Checksum{}) // metadata
		if len(n.Files) != len(sink.files) || first == (n.Commit == ostree.Checksum{}) {
			t.Errorf("%d files, the sink has %d; commit %s of first %v", len(n.Files), len(sink.files), n.Commit, first)
		}
		for _, c := range n.Files {
			if sink.files[c] != 1 {
				t.Errorf("the sink has %s %d times", c, sink.files[c])
			}
		}
	})
}
