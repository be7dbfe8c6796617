package osimage_test

import (
	"archive/tar"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/compression"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/sys/unix"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree/gvariant"
	"machine-pivot/test/tools/sample"
	"machine-pivot/test/worlds/oscontainer"
	"machine-pivot/test/worlds/registry"
)

// zeroes returns n zero bytes, which compress well.
func zeroes(n int64) io.Reader { return io.LimitReader(zero{}, n) }

type zero struct{}

func (zero) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// file is an entry of a tar stream.
type file struct {
	tar.Header
	content []byte
}

// tarFiles makes a tar stream. The last entry may have a larger size in its header than content.
func tarFiles(t *testing.T, files ...file) []byte {
	t.Helper()
	var b bytes.Buffer
	out := tar.NewWriter(&b)
	for _, f := range files {
		if f.Typeflag == tar.TypeGNUSparse {
			if err := out.Flush(); err != nil {
				t.Fatal(err)
			}
			b.Write(holeHeader(f.Name, f.Size))
			continue
		}
		if f.Size == 0 {
			f.Size = int64(len(f.content))
		}
		if err := out.WriteHeader(&f.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write(f.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil && !strings.Contains(err.Error(), "missed writing") {
		t.Fatal(err)
	}
	return b.Bytes()
}

// holeHeader returns the header of a file of size bytes that is one hole, as old GNU tar writes it: no
// content follows. archive/tar does not write this format.
func holeHeader(name string, size int64) []byte {
	block := make([]byte, 512)
	number := func(at int, n int64) { // in base 256
		block[at] = 0x80
		binary.BigEndian.PutUint64(block[at+4:], uint64(n))
	}
	copy(block, name)
	copy(block[100:], "0000644\x000000000\x000000000\x0000000000000\x0000000000000\x00        S")
	copy(block[257:], "ustar  \x00")
	number(386, size) // the only part with content begins at the end,
	number(398, 0)    // and is empty
	number(483, size)
	sum := 0
	for _, c := range block {
		sum += int(c)
	}
	copy(block[148:], fmt.Sprintf("%06o\x00 ", sum))
	return block
}

// archiveFile returns a .filez object with the given size in its header and n zeroes as content.
func archiveFile(t *testing.T, size uint64, n int64) []byte {
	t.Helper()
	header, err := gvariant.Encode("(tuuuusa(ayay))", gvariant.Tuple{
		bits.ReverseBytes64(size), uint32(0), uint32(0), bits.ReverseBytes32(unix.S_IFREG | 0o644), uint32(0), "", []any{},
	})
	if err != nil {
		t.Fatal(err)
	}
	b := bytes.NewBuffer(binary.BigEndian.AppendUint32(nil, uint32(len(header))))
	b.Write(make([]byte, 4))
	b.Write(header)
	z, err := flate.NewWriter(b, flate.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(z, zeroes(n))
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestTricksInLayers adds a malicious layer to a good image and imports the result.
func TestTricksInLayers(t *testing.T) {
	repo, commit := tiny(t)
	ownEnvironment(t)
	good, err := filepath.Glob(filepath.Join(repo, "objects/*/*.filez"))
	if err != nil || len(good) == 0 {
		t.Fatal(err)
	}
	content, err := os.ReadFile(good[0])
	if err != nil {
		t.Fatal(err)
	}
	name := "srv/repo/" + strings.TrimPrefix(good[0], repo+"/")
	regular := func(name string, content []byte) file {
		return file{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}, content}
	}
	hole := func(name string, size int64) file {
		return file{tar.Header{Name: name, Typeflag: tar.TypeGNUSparse, Size: size}, nil}
	}
	special := func(name string, kind byte, link string) file {
		return file{tar.Header{Name: name, Typeflag: kind, Linkname: link}, nil}
	}
	object := "srv/repo/objects/00/" + strings.Repeat("0", 62)
	var refs []file
	for i := range 1025 {
		refs = append(refs, regular("srv/repo/refs/heads/"+strconv.Itoa(i), []byte(commit)))
	}
	const MiB, less = 1 << 20, "build the image with less in it"
	for what, c := range map[string]struct {
		files   []file
		times   int   // the number of such layers; 0: one
		trailer int64 // zeroes after the end of the tar stream
		kind    fault.Kind
		text    string // "" if the image must be accepted
		hint    string
	}{
		"paths out of the root":                  {files: []file{regular("../../../../tmp/x", nil), regular("/etc/x", nil), special("../..", tar.TypeSymlink, "/")}},
		"devices elsewhere":                      {files: []file{special("dev/sda", tar.TypeBlock, ""), special("dev/null", tar.TypeChar, ""), special("run/x", tar.TypeFifo, "")}},
		"over-long names":                        {files: []file{regular(strings.Repeat("directory/", 1000)+"x", nil), special("x", tar.TypeSymlink, strings.Repeat("y", 10000)), regular(object+strings.Repeat("0", 500)+".filez", nil)}},
		"objects again":                          {files: []file{regular(name, content), regular("./"+name, content), regular("/"+name, content)}},
		"objects that are a link to a directory": {files: []file{special("srv/repo/objects", tar.TypeSymlink, "/etc"), regular(name, content)}},
		"padding":                                {trailer: 10 * MiB},
		"a device":                               {files: []file{special(object+".filez", tar.TypeChar, "")}, kind: fault.BadInput, text: "not an object"},
		"a hard link":                            {files: []file{special(object+".filez", tar.TypeLink, "/etc/shadow")}, kind: fault.BadInput, text: "not an object"},
		"a symlink":                              {files: []file{special(object+".dirtree", tar.TypeSymlink, "/etc/shadow")}, kind: fault.BadInput, text: "not an object"},
		"an escaping object":                     {files: []file{regular("x/../../"+object+".filez", nil)}, kind: fault.BadInput, text: strings.Repeat("0", 64)},
		"too many refs":                          {files: refs, kind: fault.BadInput, text: "more than 1024 refs", hint: less},
		"an over-long ref":                       {files: []file{regular("srv/repo/refs/heads/"+strings.Repeat("x", 2000), nil)}, kind: fault.BadInput, text: "more than 1024 bytes"},
		"a promise": {files: []file{{tar.Header{Name: "x", Typeflag: tar.TypeReg, Size: 65 << 30}, nil}},
			kind: fault.BadInput, text: "unpacks to more than 64 GiB", hint: less},
		"a promise of holes": {files: []file{hole("x", 40<<30), hole("y", 40<<30)},
			kind: fault.BadInput, text: "unpacks to more than 64 GiB", hint: less},
		"promises in several layers": {files: []file{hole("x", 60<<30)}, times: 5,
			kind: fault.BadInput, text: "unpack to more than 256 GiB together", hint: less},
		"as much as a layer may have": {files: []file{hole("x", 60<<30)}, times: 4},
		"a promised object": {files: []file{regular(object+".filez", archiveFile(t, 1<<60, 0))},
			kind: fault.CannotWrite, text: "cannot write object of 1152921504606846976 bytes"},
		"more than promised": {files: []file{regular(object+".filez", archiveFile(t, 100, 100*MiB))},
			kind: fault.BadInput, text: "more content than the 100 bytes its header says"},
		"zeroes for an object": {files: []file{regular(object+".filez", archiveFile(t, 100*MiB, 100*MiB))},
			kind: fault.BadInput, text: "its content has the checksum"},
		"a truncated tar": {files: []file{{tar.Header{Name: "x", Typeflag: tar.TypeReg, Size: 2000}, nil}},
			kind: fault.BadInput, text: "unexpected EOF"},
		"a bomb at the end": {trailer: 100 * MiB, kind: fault.BadInput, text: "more than 16 MiB follow the end", hint: less},
	} {
		for _, packed := range []compression.Compression{compression.GZip, compression.ZStd} {
			t.Run(what+" "+string(packed), func(t *testing.T) {
				sample.Short(t, 12)
				t.Parallel()
				open := func() (io.ReadCloser, error) {
					return io.NopCloser(io.MultiReader(bytes.NewReader(tarFiles(t, c.files...)), zeroes(c.trailer))), nil
				}
				layer, err := tarball.LayerFromOpener(open, tarball.WithCompression(packed), tarball.WithCompressionLevel(1))
				if err != nil {
					t.Fatal(err)
				}
				img, err := mutate.AppendLayers(legacy(t, repo, commit, oscontainer.WithLayers(1)), slices.Repeat([]v1.Layer{layer}, max(c.times, 1))...)
				if err != nil {
					t.Fatal(err)
				}
				h := startHost(t, registry.Options{})
				ref, _ := h.push("x", img)
				target := bare(t)
				result, err := h.importRef(ref, target)
				if c.text == "" {
					if err != nil {
						t.Fatal(err)
					}
					checkImported(t, target, commit, result)
					return
				}
				refused(t, err, c.kind, c.text, c.hint)
				checkUntouched(t, target)
			})
		}
	}
}
