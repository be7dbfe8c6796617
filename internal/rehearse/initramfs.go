package rehearse

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// InitramfsContents are what an initramfs contains.
type InitramfsContents struct {
	Modules map[string]bool // names of kernel modules, as moduleName returns them
	Dracut  map[string]bool // dracut's modules; nil if it does not say
	Opens   bool            // it has a program that opens disks of LUKS
	Pivot   *Sum            // of /usr/bin/pivot; nil if it has none
}

// Sum is the SHA-256 of a file.
type Sum [sha256.Size]byte

// maxInitramfs limits what an initramfs may expand to, in bytes. Large ones expand to 400 MB.
const maxInitramfs = 2 << 30

// maxInitramfsWindow limits the memory that one compressed with zstd may ask for, in bytes. The highest of zstd's usual
// levels, 19, asks for 8 MiB.
const maxInitramfsWindow = 32 << 20

// moduleName returns the name of a kernel module as the kernel writes it, from that of its file.
func moduleName(file string) string {
	name, _, _ := strings.Cut(path.Base(file), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

// ReadInitramfs reads an initramfs: archives one after the other, each of them compressed or not, with zeros between, as
// the kernel reads it (Documentation/driver-api/early-userspace/buffer-format.rst). An error means that nothing is known: what
// was not read could have anything.
func ReadInitramfs(r io.Reader) (InitramfsContents, error) {
	c := InitramfsContents{Modules: map[string]bool{}}
	from := bufio.NewReaderSize(r, 64<<10)
	for n := 0; ; n++ {
		magic, err := skipZeros(from)
		if errors.Is(err, io.EOF) && n > 0 {
			return c, nil
		}
		if err != nil {
			return c, err
		}
		if err := c.readPart(from, magic); err != nil {
			return c, err
		}
	}
}

// readPart reads one archive, or one compressed stream of them.
func (c *InitramfsContents) readPart(from *bufio.Reader, magic []byte) error {
	if bytes.HasPrefix(magic, []byte("0707")) {
		return c.readArchive(from)
	}
	stream, err := expandPart(from, magic)
	if err != nil {
		return err
	}
	expanded := bufio.NewReaderSize(io.LimitReader(stream, maxInitramfs), 64<<10)
	for n := 0; ; n++ {
		_, err := skipZeros(expanded)
		if errors.Is(err, io.EOF) && n > 0 {
			return nil
		}
		if err == nil {
			err = c.readArchive(expanded)
		}
		if err != nil {
			return err
		}
	}
}

// skipZeros returns the first bytes after zeros.
func skipZeros(from *bufio.Reader) (magic []byte, err error) {
	for {
		b, err := from.ReadByte()
		if err != nil {
			return nil, err
		}
		if b != 0 {
			if err := from.UnreadByte(); err != nil {
				return nil, err
			}
			magic, err := from.Peek(6)
			if len(magic) < 6 {
				return nil, fmt.Errorf("it ends in %q: %w", magic, io.ErrUnexpectedEOF)
			}
			return magic, err
		}
	}
}

// expandPart decompresses what begins with magic. The reader ends with the stream; what follows is still to be read from from, or
// is an error.
func expandPart(from *bufio.Reader, magic []byte) (io.Reader, error) {
	switch {
	case bytes.HasPrefix(magic, []byte("\x1f\x8b")):
		z, err := gzip.NewReader(from)
		if err == nil {
			z.Multistream(false)
		}
		return z, err
	case bytes.HasPrefix(magic, []byte("\x28\xb5\x2f\xfd")):
		return zstd.NewReader(&zstdFrame{from: from}, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxInitramfsWindow))
	case bytes.HasPrefix(magic, []byte("\xfd7zXZ\x00")):
		return xz.ReaderConfig{DictCap: maxInitramfsWindow}.NewReader(from)
	case bytes.HasPrefix(magic, []byte("\x02\x21\x4c\x18")):
		return newLZ4(from)
	}
	return nil, fmt.Errorf("it is compressed in an unknown way (%x)", magic)
}
