package inflate_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"testing"
	"testing/iotest"

	"machine-pivot/internal/inflate"
)

// zip makes a gzip file with all optional fields in the header.
func zip(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Name, w.Comment, w.Extra = "name", "comment", make([]byte, 300)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func unzip(from io.Reader) ([]byte, error) {
	z, err := inflate.NewGzip(from)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

func TestGzip(t *testing.T) {
	for name, data := range contents(t) {
		packed := zip(t, data)
		members := append(append(bytes.Clone(packed), packed...), zip(t, nil)...)
		got, err := unzip(bytes.NewReader(packed))
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		got, err = unzip(iotest.HalfReader(bytes.NewReader(members)))
		if err != nil || !bytes.Equal(got, append(bytes.Clone(data), data...)) {
			t.Errorf("%s, three members: %d bytes, %v", name, len(got), err)
		}
	}
}

// TestGzipReset reads a file after a partially read file and after a damaged file.
func TestGzipReset(t *testing.T) {
	first, second := bytes.Repeat([]byte("the first file, "), 50_000), []byte("the second")
	z, err := inflate.NewGzip(bytes.NewReader(zip(t, first)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(z, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	for _, damaged := range [][]byte{nil, zip(t, first)[:500]} {
		if damaged != nil {
			if err := z.Reset(bytes.NewReader(damaged)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(z); err != io.ErrUnexpectedEOF {
				t.Fatalf("cut off: %v", err)
			}
		}
		if err := z.Reset(bytes.NewReader(zip(t, second))); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(z); err != nil || !bytes.Equal(got, second) {
			t.Errorf("%q, %v, want %q", got, err, second)
		}
	}
}

func TestGzipRefuses(t *testing.T) {
	packed := zip(t, bytes.Repeat([]byte("some text, "), 100))
	for n := range packed {
		if _, err := unzip(bytes.NewReader(packed[:n])); err != io.ErrUnexpectedEOF {
			t.Fatalf("cut off after %d of %d bytes: %v", n, len(packed), err)
		}
	}
	for n := 1; n <= 8; n++ {
		damaged := bytes.Clone(packed)
		damaged[len(packed)-n]++
		if _, err := unzip(bytes.NewReader(damaged)); err == nil {
			t.Errorf("checksum or size damaged at %d from the end: no error", n)
		}
	}
	if _, err := unzip(bytes.NewReader(append(packed, make([]byte, 20)...))); err != inflate.ErrGzip {
		t.Errorf("something follows: %v", err)
	}
}

// FuzzGzip compares Gzip with compress/gzip.
func FuzzGzip(f *testing.F) {
	f.Add(zip(f, nil))
	f.Add(append(zip(f, []byte("some text")), zip(f, make([]byte, 1000))...))
	f.Fuzz(func(t *testing.T, packed []byte) {
		want, wantErr := []byte(nil), error(nil)
		if z, err := gzip.NewReader(bytes.NewReader(packed)); err != nil {
			wantErr = err
		} else {
			want, wantErr = io.ReadAll(io.LimitReader(z, 4<<20))
		}
		if len(want) == 4<<20 {
			t.Skip()
		}
		got, err := unzip(bytes.NewReader(packed))
		// Gzip differs in two ways: it does not verify the rarely used checksum of a header, and it
		// rejects reserved flags.
		if err == nil && wantErr == nil && !bytes.Equal(got, want) || err != nil && wantErr == nil && err != inflate.ErrGzip {
			t.Errorf("%x: %d bytes, %v; want %d bytes, %v", packed, len(got), err, len(want), wantErr)
		}
		if err == nil && wantErr != nil && wantErr != gzip.ErrHeader {
			t.Errorf("%x: no error, want %v", packed, wantErr)
		}
	})
}
