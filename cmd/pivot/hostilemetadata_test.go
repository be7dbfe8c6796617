package main

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
	"testing"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/ostree/gvariant"
)

// encode calls gvariant.Encode.
func encode(t *testing.T, typ string, value any) []byte {
	t.Helper()
	data, err := gvariant.Encode(typ, value)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// dirMeta returns a directory's metadata.
func dirMeta(t *testing.T, xattrs any) []byte {
	return encode(t, "(uuua(ayay))", gvariant.Tuple{uint32(0), uint32(0), bits.ReverseBytes32(unix.S_IFDIR), xattrs})
}

// commitOf returns a commit with metadata of a type, and a root directory.
func commitOf(t *testing.T, typ string, metadata, root []byte) []byte {
	t.Helper()
	value, err := gvariant.Open(typ, metadata)
	if err != nil {
		t.Fatal(err)
	}
	tree, meta := sha256.Sum256(root), sha256.Sum256(dirMeta(t, []any{}))
	return encode(t, "(a{sv}aya(say)sstayay)", gvariant.Tuple{
		[]any{gvariant.Tuple{"k", gvariant.Variant{Type: typ, Value: value}}},
		[]byte{}, []any{}, "", "", uint64(0), tree[:], meta[:],
	})
}

// array serializes an array of n elements returned by a function.
func array(n int, element func(i int) []byte) []byte {
	var data []byte
	var ends []int
	for i := range n {
		data = append(data, element(i)...)
		ends = append(ends, len(data))
	}
	for _, end := range ends {
		data = binary.LittleEndian.AppendUint32(data, uint32(end))
	}
	return data
}

// attributes returns n extended attributes with short names, in order.
func attributes(n int) []byte {
	return array(n, func(i int) []byte { return fmt.Appendf(nil, "%05x\x00\x06", i) })
}

// directory returns a dirtree with n names.
func directory(n int, files bool) []byte {
	entries := array(n, func(i int) []byte {
		sum := sha256.Sum256(fmt.Append(nil, i))
		entry := append(fmt.Appendf(nil, "%05x\x00", i), sum[:]...)
		if files {
			return append(entry, 6)
		}
		return append(append(entry, sum[:]...), 38, 6)
	})
	if files {
		return binary.LittleEndian.AppendUint32(entries, uint32(len(entries)))
	}
	return binary.LittleEndian.AppendUint32(entries, 0)
}

// expanding returns directories, each of which contains the previous one under a hundred names,
// so that a few hundred KiB describe more files than a file system can have. The last one is
// the root.
func expanding(t *testing.T, levels int) (trees [][]byte) {
	t.Helper()
	meta := sha256.Sum256(dirMeta(t, []any{}))
	below := encode(t, "(a(say)a(sayay))", gvariant.Tuple{[]any{}, []any{}})
	for trees = [][]byte{below}; levels > 0; levels-- {
		sum := sha256.Sum256(below)
		var dirs []any
		for n := range 100 {
			dirs = append(dirs, gvariant.Tuple{fmt.Sprintf("%02d", n), sum[:], meta[:]})
		}
		below = encode(t, "(a(say)a(sayay))", gvariant.Tuple{[]any{}, dirs})
		trees = append(trees, below)
	}
	return trees
}

// filez returns a file of an archive repository with these serialized attributes.
func filez(t *testing.T, n int, xattrs []byte) entry {
	t.Helper()
	value, err := gvariant.Open("a(ayay)", xattrs)
	if err != nil {
		t.Fatal(err)
	}
	header := encode(t, "(tuuuusa(ayay))", gvariant.Tuple{uint64(0), uint32(0), uint32(0), bits.ReverseBytes32(unix.S_IFREG | 0o644), uint32(0), "", value})
	b := bytes.NewBuffer(binary.BigEndian.AppendUint32(nil, uint32(len(header))))
	b.Write(make([]byte, 4))
	b.Write(header)
	z, err := flate.NewWriter(b, flate.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return file(fmt.Sprintf("srv/repo/objects/%02x/%062x.filez", n, n), b.Bytes())
}

// raw returns a serialized value.
func raw(t *testing.T, typ string, data []byte) gvariant.Value {
	t.Helper()
	v, err := gvariant.Open(typ, data)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
