package rehearse_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"machine-pivot/internal/rehearse"
)

// archive returns an archive in the format newc. Files have their names as content, but for dracut's list.
func archive(files ...string) []byte {
	var out bytes.Buffer
	for n, name := range append(files, "TRAILER!!!") {
		content := name
		if n == len(files) {
			content = ""
		} else if strings.HasSuffix(name, "modules.txt") {
			content = "bash\ncrypt\nmdraid\n"
		}
		fmt.Fprintf(&out, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00", n, 0o100644, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0, name)
		pad(&out)
		out.WriteString(content)
		pad(&out)
	}
	return out.Bytes()
}

func pad(out *bytes.Buffer) {
	for out.Len()%4 != 0 {
		out.WriteByte(0)
	}
}

// The formats in which an archive can be, by the program that makes them.
func formats(t testing.TB) map[string]func([]byte) []byte {
	compress := func(open func(io.Writer) (io.WriteCloser, error)) func([]byte) []byte {
		return func(data []byte) []byte {
			var out bytes.Buffer
			w, err := open(&out)
			if err == nil {
				_, err = w.Write(data)
			}
			if err == nil {
				err = w.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			return out.Bytes()
		}
	}
	return map[string]func([]byte) []byte{
		"none": func(data []byte) []byte { return data },
		"gzip": compress(func(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil }),
		"zstd": compress(func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) }),
		"zstd, in one segment": func(data []byte) []byte {
			w, err := zstd.NewWriter(nil, zstd.WithSingleSegment(true), zstd.WithEncoderCRC(false))
			if err != nil {
				t.Fatal(err)
			}
			return w.EncodeAll(data, nil)
		},
		"xz":  compress(func(w io.Writer) (io.WriteCloser, error) { return xz.NewWriter(w) }),
		"lz4": lz4,
	}
}

// lz4 writes an archive as literals, but for ten of the zeros before its last five bytes: those repeat the one before.
func lz4(data []byte) []byte {
	literals := len(data) - 15
	block := append([]byte{0xf0 | 10 - 4}, lengths(literals-15)...)
	block = append(append(block, data[:literals]...), 1, 0, 5<<4)
	block = append(block, data[len(data)-5:]...)
	out := binary.LittleEndian.AppendUint32([]byte("\x02\x21\x4c\x18"), uint32(len(block)))
	return append(out, block...)
}

func lengths(n int) (out []byte) {
	for ; n >= 255; n -= 255 {
		out = append(out, 255)
	}
	return append(out, byte(n))
}

// TestInitramfs (P100): an early archive and a compressed one, zeros between, in each format.
func TestInitramfs(t *testing.T) {
	early := append(archive("kernel/x86/microcode/GenuineIntel.bin"), make([]byte, 512)...)
	main := archive("usr/lib/modules/6.1/kernel/fs/xfs/xfs.ko.xz", "./usr/lib/modules/6.1/kernel/drivers/md/dm-mod.ko", "usr/lib/dracut/modules.txt", "usr/bin/true")
	main = append(main, make([]byte, 64)...) // as cpio pads it
	for name, compress := range formats(t) {
		for what, whole := range map[string][]byte{"alone": compress(main), "after an early one": slices.Concat(early, compress(main)), "padded": append(compress(main), 0, 0, 0, 0, 0, 0, 0, 0)} {
			got, err := rehearse.ReadInitramfs(bytes.NewReader(whole))
			if err != nil {
				t.Errorf("%s, %s: %v", name, what, err)
				continue
			}
			modules, dracut := slices.Sorted(maps.Keys(got.Modules)), slices.Sorted(maps.Keys(got.Dracut))
			if !slices.Equal(modules, []string{"dm_mod", "xfs"}) || !slices.Equal(dracut, []string{"bash", "crypt", "mdraid"}) {
				t.Errorf("%s, %s: modules %v, dracut's %v", name, what, modules, dracut)
			}
			if _, err := rehearse.ReadInitramfs(bytes.NewReader(whole[:len(whole)-len(compress(main))/2])); err == nil {
				t.Errorf("%s, %s: a part of it is no error", name, what)
			}
		}
	}
	// What follows has modules, too: it is read, or nothing is known.
	more := archive("usr/lib/modules/6.1/kernel/drivers/nvme.ko")
	for name, compress := range formats(t) {
		got, err := rehearse.ReadInitramfs(bytes.NewReader(slices.Concat(compress(main), more)))
		if err == nil && !got.Modules["nvme"] {
			t.Errorf("%s: what follows is not there", name)
		}
	}
}

// TestInitramfsWrong (P100): what is not an initramfs is an error.
func TestInitramfsWrong(t *testing.T) {
	name := archive("usr/bin/true")
	copy(name[6+8*11:], "00100000")
	for what, data := range map[string]string{
		"empty": "", "zeros": "\x00\x00\x00\x00", "short": "0707", "text": "not an initramfs", "old format": "070707" + strings.Repeat("0", 200),
		"no number": "070701" + strings.Repeat("x", 200), "a long name": string(name), "lzo": "\x89LZO\x00\r\n\x1a\n",
		"lz4 that repeats nothing": "\x02\x21\x4c\x18\x03\x00\x00\x00\x00\x01\x00",
	} {
		if _, err := rehearse.ReadInitramfs(strings.NewReader(data)); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

// FuzzInitramfs: no input panics, hangs, or takes more memory than its window.
func FuzzInitramfs(f *testing.F) {
	for _, compress := range formats(f) {
		f.Add(compress(archive("usr/lib/modules/6.1/kernel/fs/xfs/xfs.ko.xz", "usr/lib/dracut/modules.txt")))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<16 {
			return
		}
		if c, err := rehearse.ReadInitramfs(bytes.NewReader(data)); err == nil && c.Modules == nil {
			t.Error("neither contents nor an error")
		}
	})
}

// BenchmarkInitramfs: an initramfs of 100 MB that expands to twice as much.
func BenchmarkInitramfs(b *testing.B) {
	data := make([]byte, 200<<20)
	state := uint64(1)
	for i := 0; i < len(data); i += 8 {
		if state = state*6364136223846793005 + 1442695040888963407; i%2048 < 1024 { // the rest repeats
			binary.LittleEndian.PutUint64(data[i:], state)
		}
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00", 1, 0o100644, 0, 0, 1, 0, len(data), 0, 0, 0, 0, 2, 0, "x")
	pad(&out)
	out.Write(data)
	out.Write(archive("usr/lib/dracut/modules.txt"))
	for _, name := range []string{"zstd", "gzip"} {
		whole := formats(b)[name](out.Bytes())
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(whole)))
			for b.Loop() {
				if _, err := rehearse.ReadInitramfs(bytes.NewReader(whole)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
