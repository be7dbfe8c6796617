package ostree_test

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/ostree"
	"machine-pivot/internal/ostree/gvariant"
)

// FuzzArchiveFile: a .filez stream is accepted only if a simple reader of the format computes
// the same checksum, and a valid regular file without extended attributes is not corrupt.
func FuzzArchiveFile(f *testing.F) {
	user := []any{gvariant.Tuple{[]byte("user.a\x00"), []byte("first")}}
	f.Add(filez(f, unix.S_IFREG|0o644, "", nil, ""))
	f.Add(filez(f, unix.S_IFREG|0o4755, "", user, "hello world\n"))
	f.Add(filez(f, unix.S_IFREG|0o600, "", nil, strings.Repeat("0123456789", 1000)))
	f.Add(filez(f, unix.S_IFLNK|0o777, "../bin/hello", user, ""))
	repo := filepath.Join(f.TempDir(), "bare")
	check(f, os.MkdirAll(filepath.Join(repo, "objects"), 0o755))
	check(f, os.MkdirAll(filepath.Join(repo, "tmp"), 0o755))
	check(f, os.WriteFile(filepath.Join(repo, "config"), []byte("[core]\nrepo_version=1\nmode=bare\n"), 0o600))
	opened, err := ostree.OpenRepo(repo)
	check(f, err)
	im, err := opened.BeginImport(f.Context())
	check(f, err)
	f.Cleanup(func() { check(f, im.Discard()) })
	had := map[ostree.Checksum]bool{}
	f.Fuzz(func(t *testing.T, data []byte) {
		want, simple, wrong := readFilez(data)
		if had[want] {
			return // an import reads an object only once
		}
		err := im.AddArchiveFile(t.Context(), want, bytes.NewReader(data))
		_, corrupt := errors.AsType[*ostree.CorruptError](err)
		if err == nil && wrong != nil || corrupt && wrong == nil && simple {
			t.Errorf("%x: %v, but by the format: %v", data, err, wrong)
		}
		had[want] = err == nil
	})
}

// filez returns a file object in the format of archive repositories.
func filez(t testing.TB, mode uint32, target string, xattrs []any, content string) []byte {
	t.Helper()
	header, err := gvariant.Encode("(tuuuusa(ayay))", gvariant.Tuple{
		bits.ReverseBytes64(uint64(len(content))), uint32(0), uint32(0), bits.ReverseBytes32(mode), uint32(0), target, xattrs,
	})
	check(t, err)
	b := bytes.NewBuffer(binary.BigEndian.AppendUint32(nil, uint32(len(header))))
	b.Write(make([]byte, 4))
	b.Write(header)
	if mode&unix.S_IFMT == unix.S_IFREG {
		z, err := flate.NewWriter(b, flate.DefaultCompression)
		check(t, err)
		_, err = z.Write([]byte(content))
		check(t, errors.Join(err, z.Close()))
	}
	return b.Bytes()
}

// readFilez computes the checksum of the object in a .filez stream, if possible even with an
// error. simple reports whether it is a regular file without extended attributes, rdev or
// link target.
func readFilez(data []byte) (c ostree.Checksum, simple bool, err error) {
	if len(data) < 8 || binary.BigEndian.Uint32(data[4:]) != 0 || uint64(binary.BigEndian.Uint32(data)) > uint64(len(data)-8) {
		return c, false, errors.New("bad prefix")
	}
	n := binary.BigEndian.Uint32(data)
	value, err := gvariant.Decode("(tuuuusa(ayay))", data[8:8+n])
	if err != nil {
		return c, false, err
	}
	fields := value.(gvariant.Tuple)
	header, err := gvariant.Encode("(uuuusa(ayay))", fields[1:])
	if err != nil {
		return c, false, err
	}
	kind := bits.ReverseBytes32(fields[3].(uint32)) & unix.S_IFMT
	var content []byte
	rest := bytes.NewReader(data[8+n:])
	if kind == unix.S_IFREG {
		if content, err = io.ReadAll(flate.NewReader(rest)); err != nil {
			return c, false, err
		}
	}
	if size := bits.ReverseBytes64(fields[0].(uint64)); size != uint64(len(content)) || rest.Len() > 0 {
		err = fmt.Errorf("%d bytes, not %d, and %d after them", len(content), size, rest.Len())
	}
	sum := sha256.New()
	sum.Write(binary.BigEndian.AppendUint32(nil, uint32(len(header))))
	sum.Write(make([]byte, 4))
	sum.Write(header)
	sum.Write(content)
	simple = kind == unix.S_IFREG && fields[4] == uint32(0) && fields[5] == "" && len(fields[6].([]any)) == 0
	return ostree.Checksum(sum.Sum(nil)), simple, err
}
