package layer

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// maxWindow bounds the window of a zstd stream, which is held in memory, in bytes. The
// zstd command has the same limit.
const maxWindow = 128 << 20

// The first bytes of compressed streams. A zstd stream may begin with a skippable frame. The low half of its first byte
// varies.
const (
	gzipMagic      = "\x1f\x8b"
	zstdMagic      = "\x28\xb5\x2f\xfd"
	skippableMagic = "\x2a\x4d\x18"
	bzip2Magic     = "BZh"
	xzMagic        = "\xfd7zX"
)

// decompress returns a reader of the decompressed stream. It detects the compression by the
// first bytes: media types are not always right, and podman does not trust them either.
func decompress(r io.Reader, shared *Shared) (io.ReadCloser, error) {
	in := bufio.NewReader(r) // cheap: its buffer is small, and larger reads bypass it
	peeked, err := in.Peek(4)
	if err != nil && err != io.EOF {
		return nil, err
	}
	head := string(peeked)
	switch {
	case strings.HasPrefix(head, gzipMagic):
		z, err := shared.gzip(in)
		if err != nil {
			return nil, fmt.Errorf("cannot decompress: %w", err)
		}
		return z, nil
	case head == zstdMagic, strings.HasSuffix(head, skippableMagic) && head[0]&0xf0 == 0x50:
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, fmt.Errorf("cannot decompress: %w", err)
		}
		return z.IOReadCloser(), nil
	case strings.HasPrefix(head, bzip2Magic), strings.HasPrefix(head, xzMagic):
		return nil, fmt.Errorf("it is compressed with neither gzip nor zstd, which nothing else is allowed to be")
	}
	return io.NopCloser(in), nil
}
