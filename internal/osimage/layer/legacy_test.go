package layer

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/ostree"
)

// fakeSink records the objects that it receives.
type fakeSink struct {
	mu   sync.Mutex
	got  map[string]int // checksum's first byte and type, to size
	fail error
}

func (s *fakeSink) AddMetadata(_ context.Context, name ostree.ObjectName, body io.Reader) error {
	return s.add("meta "+name.Checksum.String()[:2]+name.String()[64:], body)
}

func (s *fakeSink) AddArchiveFile(_ context.Context, c ostree.Checksum, body io.Reader) error {
	return s.add("file "+c.String()[:2], body)
}

func (s *fakeSink) AddFile(_ context.Context, c ostree.Checksum, info ostree.FileInfo, body io.Reader) error {
	return s.add(fmt.Sprintf("file %s %o %d:%d %q %q", c.String()[:2], info.Mode, info.UID, info.GID, info.Target, info.Xattrs), body)
}

func (s *fakeSink) add(name string, body io.Reader) error {
	content, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got[name] = len(content)
	return s.fail
}

func objectPath(first, suffix string) string {
	return "srv/repo/objects/" + first + "/" + strings.Repeat("0", 62) + suffix
}

func tarOf(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	out := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		content := []byte(h.PAXRecords["TEST.content"])
		if h.Typeflag == tar.TypeReg && content != nil && h.Size == 0 {
			h.Size = int64(len(content))
		}
		h.PAXRecords = nil
		if err := out.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := out.Write(append(content, make([]byte, h.Size-int64(len(content)))...)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func readLegacy(t *testing.T, sink *fakeSink, headers ...tar.Header) (*Legacy, error) {
	t.Helper()
	sink.got = map[string]int{}
	r := NewLegacy(sink)
	return r, readTar(t.Context(), bytes.NewReader(tarOf(t, headers...)), NewShared(), r)
}

func TestLegacy(t *testing.T) {
	sink := &fakeSink{}
	text := func(s string) map[string]string { return map[string]string{"TEST.content": s} }
	r, err := readLegacy(t, sink,
		tar.Header{Name: "srv/repo/objects/ab/", Typeflag: tar.TypeDir},
		tar.Header{Name: objectPath("aa", ".commit"), Size: 5},
		tar.Header{Name: "./" + objectPath("bb", ".dirtree"), Size: 6},
		tar.Header{Name: "/" + objectPath("cc", ".filez"), Size: 7},
		tar.Header{Name: objectPath("dd", ".filez"), Size: maxBuffered + 1},
		tar.Header{Name: "usr/" + objectPath("ee", ".filez"), Size: 1}, // not in the repository
		tar.Header{Name: "srv/repo/objects/../../../" + objectPath("ff", ".commit"), Size: 3},
		tar.Header{Name: "srv/repo/objects/aa/.wh." + strings.Repeat("0", 58) + ".filez"},
		tar.Header{Name: "srv/repo/objects/aa/notes.txt", Size: 9},
		tar.Header{Name: "srv/repo/refs/heads/a/b", PAXRecords: text("xyz\n")},
		tar.Header{Name: "srv/repo/refs/heads/old", PAXRecords: text("xyz\n")},
		tar.Header{Name: "srv/repo/refs/heads/.wh.old"},
	)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"meta aa.commit": 5, "meta bb.dirtree": 6, "file cc": 7, "file dd": maxBuffered + 1, "meta ff.commit": 3}
	if !maps.Equal(sink.got, want) || !r.objects {
		t.Errorf("objects %v, want %v", sink.got, want)
	}
	if !maps.Equal(r.heads, map[string]head{"a/b": {content: "xyz"}, "old": {hidden: true}}) {
		t.Errorf("heads %+v", r.heads)
	}
}

func TestLegacyRefuses(t *testing.T) {
	for name, h := range map[string]tar.Header{
		"hard link": {Name: objectPath("aa", ".filez"), Typeflag: tar.TypeLink, Linkname: "x"},
		"symlink":   {Name: objectPath("aa", ".dirtree"), Typeflag: tar.TypeSymlink, Linkname: "x"},
		"bare":      {Name: objectPath("aa", ".file")},
	} {
		if _, err := readLegacy(t, &fakeSink{}, h); !errors.Is(err, errObject) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLegacySinkFails(t *testing.T) {
	for _, size := range []int64{1, maxBuffered + 1} {
		headers := make([]tar.Header, 20)
		for i := range headers {
			headers[i] = tar.Header{Name: objectPath("aa", ".filez"), Size: size}
		}
		_, err := readLegacy(t, &fakeSink{fail: unix.ENOSPC}, headers...)
		if _, ok := errors.AsType[sinkError](err); !ok || !errors.Is(err, unix.ENOSPC) {
			t.Errorf("%v", err)
		}
	}
}

func TestLegacyTruncated(t *testing.T) {
	whole := tarOf(t, tar.Header{Name: objectPath("aa", ".filez"), Size: 5000})
	r := NewLegacy(&fakeSink{got: map[string]int{}})
	if err := readTar(t.Context(), bytes.NewReader(whole[:3000]), NewShared(), r); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
}
