package oscontainer

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"go.podman.io/image/v5/pkg/compression"
)

// Compression is the compression of an image's layers.
type Compression int

// The supported compressions.
const (
	Gzip Compression = iota
	Zstd
	Uncompressed
	ZstdFrames         // zstd with skippable frames between and after the data, which any reader must skip
	ZstdChunked        // zstd:chunked as podman and buildah write it, with a table of contents
	ZstdChunkedDefault // the same with their default level, for measurements: it takes 70 MB while a layer is written
)

// mediaType returns the media type of a layer in an OCI image.
func (c Compression) mediaType() types.MediaType {
	switch c {
	case Gzip:
		return types.OCILayer
	case Uncompressed:
		return types.OCIUncompressedLayer
	}
	return types.OCILayerZStd
}

// writer returns a writer that compresses to w and adds annotations of the layer, with the fastest level, because most content is
// compressed already or not worth the time. Gzip runs on all processors.
func (c Compression) writer(w io.Writer, annotations map[string]string) (io.WriteCloser, error) {
	fastest := 1
	switch c {
	case Gzip:
		return compression.CompressStream(w, compression.Gzip, &fastest)
	case Zstd:
		return compression.CompressStream(w, compression.Zstd, &fastest)
	case ZstdChunked:
		return compression.CompressStreamWithMetadata(w, annotations, compression.ZstdChunked, &fastest)
	case ZstdChunkedDefault:
		return compression.CompressStreamWithMetadata(w, annotations, compression.ZstdChunked, nil)
	case ZstdFrames:
		return &frames{out: w}, nil
	}
	return plain{w}, nil
}

// plain is a writer with a Close that does nothing.
type plain struct{ io.Writer }

func (plain) Close() error { return nil }

// frames writes each chunk as a separate zstd frame followed by a skippable frame.
type frames struct{ out io.Writer }

func (c *frames) Write(p []byte) (int, error) {
	fastest := 1
	frame, err := compression.CompressStream(c.out, compression.Zstd, &fastest)
	if err != nil {
		return 0, err
	}
	n, err := frame.Write(p)
	return n, errors.Join(err, frame.Close(), c.skippable("a frame to be skipped"))
}

// skippable writes a frame that decoders skip (RFC 8878, 3.1.2).
func (c *frames) skippable(content string) error {
	head := binary.LittleEndian.AppendUint32(nil, 0x184D2A50)
	head = binary.LittleEndian.AppendUint32(head, uint32(len(content)))
	_, err := c.out.Write(append(head, content...))
	return err
}

func (c *frames) Close() error { return c.skippable(strings.Repeat("table of contents", 1000)) }

// layer is a layer that is stored in a file. It implements v1.Layer.
type layer struct {
	file         string
	media        types.MediaType
	digest, diff v1.Hash
	size         int64
	annotations  map[string]string
}

// writeLayer writes a layer's file, in one pass.
func writeLayer(file string, media types.MediaType, c Compression, write func(io.Writer) error) (_ *layer, err error) {
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = fmt.Errorf("cannot write layer %s: %w", file, err)
		}
	}()
	digest, diff := sha256.New(), sha256.New()
	annotations := map[string]string{}
	compressed, err := c.writer(io.MultiWriter(f, digest), annotations)
	if err != nil {
		return nil, err
	}
	if err := write(io.MultiWriter(compressed, diff)); err != nil {
		return nil, errors.Join(err, compressed.Close())
	}
	if err := compressed.Close(); err != nil {
		return nil, err
	}
	size, err := f.Seek(0, io.SeekEnd)
	return &layer{file: file, media: media, digest: hashOf(digest), diff: hashOf(diff), size: size, annotations: annotations}, err
}

func hashOf(sum hash.Hash) v1.Hash {
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum.Sum(nil))}
}

// writeEntries returns the function that writes entries as an archive.
func writeEntries(prefix string, entries []Entry) func(io.Writer) error {
	return func(out io.Writer) error {
		if len(entries) == 1 && entries[0].raw {
			_, err := out.Write(entries[0].Body)
			return err
		}
		w := &tarWriter{out: out, prefix: prefix, literal: true}
		for _, e := range entries {
			if err := w.write(e); err != nil {
				return err
			}
		}
		return w.end()
	}
}

// Digest implements v1.Layer.
func (l *layer) Digest() (v1.Hash, error) { return l.digest, nil }

// DiffID implements v1.Layer.
func (l *layer) DiffID() (v1.Hash, error) { return l.diff, nil }

// Size implements v1.Layer.
func (l *layer) Size() (int64, error) { return l.size, nil }

// MediaType implements v1.Layer.
func (l *layer) MediaType() (types.MediaType, error) { return l.media, nil }

// Compressed implements v1.Layer.
func (l *layer) Compressed() (io.ReadCloser, error) { return os.Open(l.file) }

// Uncompressed implements v1.Layer.
func (l *layer) Uncompressed() (io.ReadCloser, error) {
	f, err := os.Open(l.file)
	if err != nil {
		return nil, err
	}
	content, _, err := compression.AutoDecompress(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &closeBoth{content, f}, nil
}

// closeBoth closes a reader and the file below it.
type closeBoth struct {
	io.ReadCloser
	file io.Closer
}

// Close implements io.Closer.
func (c *closeBoth) Close() error { return errors.Join(c.ReadCloser.Close(), c.file.Close()) }
