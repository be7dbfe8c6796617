package layer

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

func randomBytes(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
	return data
}

func TestReadAhead(t *testing.T) {
	for _, size := range []int{0, 1, readAheadSize - 1, readAheadSize, readAheadSize + 1, 3*readAheadBlocks*readAheadSize + 17} {
		data := randomBytes(size)
		for name, from := range map[string]io.Reader{
			"at once":      bytes.NewReader(data),
			"by halves":    iotest.HalfReader(bytes.NewReader(data)),
			"error at end": iotest.DataErrReader(bytes.NewReader(data)),
		} {
			a := newReadAhead(from, NewShared())
			got, err := io.ReadAll(a)
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes, %s: got %d, %v", size, name, len(got), err)
			}
			if n, err := a.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Errorf("after the end: %d, %v", n, err)
			}
			a.close()
		}
	}
}

func TestReadAheadPassesErrorsOn(t *testing.T) {
	broken := errors.New("broken")
	for _, failure := range []error{broken, io.ErrUnexpectedEOF} {
		data := randomBytes(readAheadSize + 5)
		a := newReadAhead(io.MultiReader(bytes.NewReader(data), iotest.ErrReader(failure)), NewShared())
		got, err := io.ReadAll(a)
		if !errors.Is(err, failure) || !bytes.Equal(got, data) {
			t.Errorf("%d bytes, %v, want %d and %v", len(got), err, len(data), failure)
		}
		a.close()
	}
}

// TestReadAheadCloses closes a readAhead that is full, and one with a silent source.
func TestReadAheadCloses(t *testing.T) {
	a := newReadAhead(bytes.NewReader(randomBytes(3*readAheadBlocks*readAheadSize)), NewShared())
	a.close()
	silent, end := io.Pipe()
	b := newReadAhead(silent, NewShared())
	ended := make(chan struct{})
	go func() { b.close(); close(ended) }()
	end.Close() // like a cancelled context closes a connection
	<-ended
}

// TestReadAheadReleases reads several streams at once with the buffers of earlier streams, some
// of which were not read to their end. No buffer may be used by two streams.
func TestReadAheadReleases(t *testing.T) {
	shared := NewShared()
	var readers sync.WaitGroup
	for n := range 4 {
		readers.Go(func() {
			for round := range 20 {
				data := bytes.Repeat([]byte{byte(n*20 + round)}, (round%4)*2*readAheadSize+1000)
				a := newReadAhead(bytes.NewReader(data), shared)
				if round%3 == 0 {
					data = data[:len(data)/2]
				}
				got, err := io.ReadAll(io.LimitReader(a, int64(len(data))))
				if err != nil || !bytes.Equal(got, data) {
					t.Errorf("reader %d, round %d: %d of %d bytes are wrong, %v", n, round, len(got), len(data), err)
				}
				a.close()
				if _, err := io.Copy(io.Discard, a); err != nil && !errors.Is(err, io.ErrClosedPipe) {
					t.Error(err)
				}
				a.release()
				if n, err := a.Read(make([]byte, 1)); n != 0 || err == nil {
					t.Errorf("after release: %d bytes, %v", n, err)
				}
			}
		})
	}
	readers.Wait()
}

func TestDecompress(t *testing.T) {
	plain := append([]byte("plain text, then noise "), randomBytes(100_000)...)
	var gz, zs bytes.Buffer
	g := gzip.NewWriter(&gz)
	z, err := zstd.NewWriter(&zs)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []io.WriteCloser{g, z} {
		if _, err := w.Write(plain); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	skippable := append([]byte{0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0}, "toc"...)
	for name, c := range map[string]struct{ in, want []byte }{
		"plain": {plain, plain}, "empty": {nil, nil}, "short": {[]byte("ab"), []byte("ab")},
		"gzip": {gz.Bytes(), plain}, "gzip twice": {append(bytes.Clone(gz.Bytes()), gz.Bytes()...), append(bytes.Clone(plain), plain...)},
		"zstd": {zs.Bytes(), plain}, "zstd, skippable first": {append(bytes.Clone(skippable), zs.Bytes()...), plain},
		"zstd:chunked, skippable last": {append(bytes.Clone(zs.Bytes()), skippable...), plain},
	} {
		r, err := decompress(bytes.NewReader(c.in), NewShared())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, c.want) {
			t.Errorf("%s: %d bytes, %v, want %d", name, len(got), err, len(c.want))
		}
	}
	for name, in := range map[string][]byte{
		"gzip cut": gz.Bytes()[:gz.Len()-5], "gzip and more": append(bytes.Clone(gz.Bytes()), "more"...),
		"zstd cut": zs.Bytes()[:zs.Len()-5], "bzip2": []byte("BZh91AY"), "xz": []byte("\xfd7zXZ\x00"),
	} {
		r, err := decompress(bytes.NewReader(in), NewShared())
		if err == nil {
			_, err = io.ReadAll(r)
		}
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
