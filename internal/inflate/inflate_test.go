package inflate_test

import (
	"bytes"
	"compress/flate"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"machine-pivot/internal/inflate"
	"machine-pivot/test/tools/sample"
)

// deflate compresses data with a level of compress/flate.
func deflate(t testing.TB, data []byte, level int) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, level)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// contents returns data that results in each kind of block, short and long distances, and codes
// with one and with many symbols.
func contents(t testing.TB) map[string][]byte {
	t.Helper()
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 300_000)
	skewed := make([]byte, 300_000)
	for i := range noise {
		noise[i] = byte(r.Uint32())
		for v := r.Uint32(); v&1 == 1; v >>= 1 {
			skewed[i]++
		}
	}
	far := append(bytes.Clone(noise[:32<<10]), noise[:32<<10]...)
	return map[string][]byte{
		"empty": nil, "a byte": {0}, "zeros": make([]byte, 1<<20), "noise": noise, "skewed": skewed,
		"text": []byte(strings.Repeat("the quick brown fox\n", 20_000)), "far": far,
		"pairs": bytes.Repeat([]byte("ab"), 200_000), "program": program[:min(len(program), 3<<20)],
	}
}

func TestDecode(t *testing.T) {
	d := inflate.New()
	for name, data := range contents(t) {
		for _, level := range []int{flate.NoCompression, flate.BestSpeed, flate.DefaultCompression, flate.BestCompression, flate.HuffmanOnly} {
			if testing.Short() && !sample.Picks(fmt.Sprint(name, level), 4) {
				continue
			}
			packed := deflate(t, data, level)
			for how, from := range map[string]io.Reader{
				"whole":        bytes.NewReader(packed),
				"in halves":    iotest.HalfReader(bytes.NewReader(packed)),
				"end with EOF": iotest.DataErrReader(bytes.NewReader(packed)),
			} {
				var got bytes.Buffer
				if err := d.Decode(&got, from, uint64(len(data))); err != nil || !bytes.Equal(got.Bytes(), data) {
					t.Errorf("%s, level %d, %s: %d bytes, %v", name, level, how, got.Len(), err)
				}
			}
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	data := bytes.Repeat([]byte("some text, "), 1000)
	packed := deflate(t, data, flate.DefaultCompression)
	broken := errors.New("broken")
	for _, c := range []struct {
		name string
		from io.Reader
		size int
		want string
	}{
		{"more than said", bytes.NewReader(packed), len(data) - 1, "more content than the"},
		{"less than said", bytes.NewReader(packed), len(data) + 1, "its header says"},
		{"something follows", bytes.NewReader(append(bytes.Clone(packed), 0)), len(data), "something follows"},
		{"much follows", io.MultiReader(bytes.NewReader(packed), bytes.NewReader(make([]byte, 1<<20))), len(data), "something follows"},
		{"a bomb", bytes.NewReader(deflate(t, make([]byte, 100<<20), 9)), 1000, "more content than the 1000 bytes"},
		{"reserved block", strings.NewReader("\x07"), 0, "not a DEFLATE stream"},
		{"stored, length wrong", strings.NewReader("\x01\x01\x00\x00\x00x"), 1, "not a DEFLATE stream"},
		{"distance before the start", strings.NewReader("\x03\x02\x00"), 3, "not a DEFLATE stream"},
		{"reader fails", io.MultiReader(bytes.NewReader(packed[:10]), iotest.ErrReader(broken)), len(data), "broken"},
	} {
		if err := inflate.New().Decode(io.Discard, c.from, uint64(c.size)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	for n := range packed {
		if err := inflate.New().Decode(io.Discard, bytes.NewReader(packed[:n]), uint64(len(data))); err != io.ErrUnexpectedEOF {
			t.Fatalf("cut off after %d of %d bytes: %v", n, len(packed), err)
		}
	}
}

// FuzzDecode compares Decode with compress/flate.
func FuzzDecode(f *testing.F) {
	for _, data := range contents(f) {
		for level := flate.HuffmanOnly; level <= flate.BestCompression; level += 3 {
			f.Add(deflate(f, data[:min(len(data), 4<<10)], level))
		}
	}
	f.Fuzz(func(t *testing.T, packed []byte) {
		const most = 4 << 20
		in := bytes.NewReader(packed)
		want, wantErr := io.ReadAll(io.LimitReader(flate.NewReader(in), most+1))
		if len(want) > most {
			t.Skip()
		}
		whole := wantErr == nil && in.Len() == 0
		for _, from := range []io.Reader{bytes.NewReader(packed), iotest.OneByteReader(bytes.NewReader(packed))} {
			var got bytes.Buffer
			err := inflate.New().Decode(&got, from, uint64(len(want)))
			if whole != (err == nil) || whole && !bytes.Equal(got.Bytes(), want) {
				t.Errorf("%x: %d bytes, %v; want %d bytes, %v, %d left", packed, got.Len(), err, len(want), wantErr, in.Len())
			}
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	data := contents(b)["program"]
	packed := deflate(b, data, flate.DefaultCompression)
	d := inflate.New()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if err := d.Decode(io.Discard, bytes.NewReader(packed), uint64(len(data))); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompressFlate(b *testing.B) {
	data := contents(b)["program"]
	packed := deflate(b, data, flate.DefaultCompression)
	d := flate.NewReader(nil)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if err := d.(flate.Resetter).Reset(bytes.NewReader(packed), nil); err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(struct{ io.Writer }{io.Discard}, d); err != nil {
			b.Fatal(err)
		}
	}
}
