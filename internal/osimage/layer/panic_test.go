package layer

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/guard"
)

// panicking is a stream that panics.
type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic("read") }
func (panicking) Close() error             { return nil }

// TestPanics: if the stream or the sink panics, each in a separate goroutine, Read returns the
// panic as an error, and does not report a damaged layer.
func TestPanics(t *testing.T) {
	plain := tarOf(t, tar.Header{Name: objectPath("aa", ".commit"), Size: 5}, tar.Header{Name: objectPath("bb", ".filez"), Size: maxBuffered + 1})
	var unmade *fakeSink // nil, so that it panics
	for name, c := range map[string]struct {
		stream io.ReadCloser
		sink   Sink
	}{
		"stream": {panicking{}, &fakeSink{got: map[string]int{}}},
		"sink":   {io.NopCloser(bytes.NewReader(plain)), unmade},
	} {
		shared := NewShared()
		err := Read(t.Context(), c.stream, "sha256:0", NewLegacy(c.sink), shared)
		if _, panicked := errors.AsType[*guard.Panic](err); !panicked || fault.KindOf(err) != fault.Internal {
			t.Errorf("%s: %v", name, err)
		}
		if len(shared.batches) != maxBatches || len(shared.large) != maxLarge {
			t.Errorf("%s: %d of %d batches and %d of %d large buffers came back", name, len(shared.batches), maxBatches, len(shared.large), maxLarge)
		}
	}
}
