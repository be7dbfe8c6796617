package layer

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/gzip"
	"golang.org/x/sys/unix"

	"machine-pivot/internal/fault"
)

// closing is a stream that records whether it was closed.
type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

func gzipped(t *testing.T, plain []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestRead checks the kind of the error for each cause, its hint for a limit, and that the stream is always closed.
func TestRead(t *testing.T) {
	plain := tarOf(t, tar.Header{Name: objectPath("aa", ".commit"), Size: 5}, tar.Header{Name: objectPath("bb", ".filez"), Size: maxBuffered + 1})
	whole := gzipped(t, plain)
	id := fmt.Sprintf("sha256:%x", sha256.Sum256(plain))
	const less = "build the image with less in it"
	broken := fault.New(fault.Refused, "broken")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx    context.Context
		stream io.Reader
		diffID string
		sink   error
		first  bool // the first layer of a native image; otherwise a legacy layer
		files  bool // a layer of files, without checksums of their own
		is     error
		kind   fault.Kind
		text   string // in the error; "" if the layer is good
		hint   string
	}{
		"good":                   {stream: bytes.NewReader(whole)},
		"plain":                  {stream: bytes.NewReader(plain)},
		"another diff id":        {stream: bytes.NewReader(whole), diffID: "sha256:0"},
		"another, of files":      {stream: bytes.NewReader(whole), diffID: "sha256:0", files: true, kind: fault.BadInput, text: "not sha256:0"},
		"cut":                    {stream: bytes.NewReader(whole[:len(whole)-20]), kind: fault.BadInput, text: "unexpected EOF"},
		"not compressed so":      {stream: strings.NewReader("BZh91AY"), kind: fault.BadInput, text: "neither gzip nor zstd"},
		"no tar":                 {stream: strings.NewReader(strings.Repeat("x", 1024)), kind: fault.BadInput, text: "tar"},
		"wrong at its end":       {stream: bytes.NewReader(whole), first: true, kind: fault.BadInput, text: "no commit in the first layer"},
		"stream fails":           {stream: io.MultiReader(bytes.NewReader(whole[:40]), iotest.ErrReader(broken)), is: broken, kind: fault.Refused, text: "broken"},
		"stream fails at once":   {stream: iotest.ErrReader(broken), is: broken, kind: fault.Refused, text: "broken"},
		"stream fails behind it": {stream: io.MultiReader(bytes.NewReader(whole), iotest.ErrReader(broken)), is: broken, kind: fault.Refused, text: "broken"},
		"a large window":         {stream: strings.NewReader(zstdMagic + "\x00\x90"), kind: fault.BadInput, text: "of 128 MiB", hint: less}, // 256 MiB
		"much behind it":         {stream: io.MultiReader(bytes.NewReader(whole), bytes.NewReader(gzipped(t, make([]byte, maxTrailer+1)))), kind: fault.BadInput, text: "16 MiB follow", hint: less},
		"large xattrs":           {stream: bytes.NewReader(tarOf(t, tar.Header{Name: nativePath("11", ".file-xattrs-link"), Size: maxXattrs + 1})), first: true, kind: fault.BadInput, text: "extended attributes of", hint: less},
		"a long ref":             {stream: bytes.NewReader(tarOf(t, tar.Header{Name: legacyHeads + strings.Repeat("x", maxRefLength+1)})), kind: fault.BadInput, text: "refs", hint: less},
		"sink fails":             {stream: bytes.NewReader(whole), sink: unix.ENOSPC, is: unix.ENOSPC, kind: fault.Internal, text: "no space"},
		"context ended":          {ctx: ended, stream: bytes.NewReader(whole), is: context.Canceled, kind: fault.Unavailable, text: "canceled"},
	} {
		if c.ctx == nil {
			c.ctx = t.Context()
		}
		if c.diffID == "" {
			c.diffID = id
		}
		sink := &fakeSink{got: map[string]int{}, fail: c.sink}
		var content Content = NewLegacy(sink)
		switch {
		case c.first:
			content = NewNative(sink, true)
		case c.files:
			content = NewFiles(nil, "nothing/in/it")
		}
		stream := &closing{Reader: c.stream}
		err := Read(c.ctx, stream, c.diffID, content, NewShared())
		if !stream.closed {
			t.Errorf("%s: the stream was left open", name)
		}
		if c.text == "" {
			if err != nil || len(sink.got) != 2 {
				t.Errorf("%s: %v, objects %v", name, err, sink.got)
			}
			continue
		}
		if err == nil || !strings.Contains(fault.HintOf(err), c.hint) || fault.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.text) || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: kind %d, want %d; %v, want %q", name, fault.KindOf(err), c.kind, err, c.text)
		}
	}
}
