// Package layer reads one layer of an OS image: it decompresses the stream, and hands each
// ostree object or file in it to a sink. It does no I/O of its own and depends on no
// registry.
//
// Formats. Streams are gzip, zstd or plain, told by their first bytes; inside is a
// tar stream (what archive/tar reads: ustar, PAX, GNU). Of a legacy image
// (machine-os-content) it holds files of an archive repository below srv/repo; of
// an ostree-native container files as crates/ostree-ext/src/tar/export.rs writes
// them, with extended attributes in either of its two forms.
//
// Limits. A layer unpacks to at most 64 GiB, with at most 16 MiB after its tar
// stream; a zstd window has at most 128 MiB, refs of a legacy layer are at most
// 1024, and extended attributes 1 MiB for a file. Memory is bounded: two times eight
// blocks of 256 KiB for a layer, and for all layers of an import (Shared) 16 objects
// of at most 1 MiB, 32 MiB of extended attributes, and a note of each object, of which
// there are at most 1,048,576. Larger objects are streams.
package layer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync/atomic"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/imagefault"
)

// Read reads a whole layer, gives its entries to c, and compares the decompressed stream
// with its diff ID ("sha256:…", from the image's config). What c has put into its sink
// may be used only if there is no error.
//
// Read closes the stream; Close must make a Read that is in progress return. Errors of
// stream and sink are returned as they are. If the context has ended the error is
// fault.Unavailable; all other errors mean a damaged layer, fault.BadInput.
func Read(ctx context.Context, compressed io.ReadCloser, diffID string, c Content, shared *Shared) error {
	r, err := startReading(ctx, compressed, shared)
	if err != nil {
		return err
	}
	defer r.close()
	if err := readTar(ctx, &r.plain, shared, c); err != nil {
		return r.contentError(ctx, err)
	}
	if err := r.verify(ctx, diffID); err != nil {
		return err
	}
	return c.ended()
}

// reader is the pipeline from a layer's source to its plain tar stream. Fetching and
// decompressing each run in a goroutine of their own.
type reader struct {
	source     notingReader
	compressed *readAhead // of source
	diff       hash.Hash
	tar        *readAhead
	plain      notingReader // of tar
	close      func()
}

// startReading starts to read a layer.
func startReading(ctx context.Context, compressed io.ReadCloser, shared *Shared) (*reader, error) {
	r := &reader{source: notingReader{from: compressed}, diff: sha256.New()}
	r.compressed = newReadAhead(&r.source, shared)
	endSource := func() {
		_ = compressed.Close() // its error does not matter: all was read, or an earlier error is returned
		r.compressed.close()
	}
	plain, err := decompress(r.compressed, shared)
	if err != nil {
		err = r.sourceError(ctx, err)
		endSource()
		return nil, err
	}
	r.tar = newReadAhead(io.TeeReader(plain, r.diff), shared)
	r.plain.from = r.tar
	r.close = func() {
		endSource() // first, so that a Read of the source in progress returns
		r.tar.close()
		_ = plain.Close()
		r.tar.release()
		r.compressed.release() // only now: the decompressor was reading from it
	}
	return r, nil
}

// verify reads the layer to its end and compares the digest of the plain stream. The
// source compares that of the compressed one.
func (r *reader) verify(ctx context.Context, diffID string) error {
	switch _, err := io.CopyN(io.Discard, &r.plain, maxTrailer+1); err {
	case nil:
		return imagefault.Damaged("more than %d MiB follow the end of its tar stream", maxTrailer>>20)
	case io.EOF:
	default:
		return r.sourceError(ctx, err)
	}
	if _, err := io.Copy(io.Discard, r.compressed); err != nil {
		return r.sourceError(ctx, err)
	}
	if got := fmt.Sprintf("sha256:%x", r.diff.Sum(nil)); got != diffID {
		return imagefault.Damaged("its decompressed content has the digest %s, not %s as the image's config says", got, diffID)
	}
	return nil
}

// sourceError is the error to return for a failure to read a layer: that of the source, if
// it has failed, or else one of a damaged layer.
func (r *reader) sourceError(ctx context.Context, err error) error {
	if failed := r.source.failure(); failed != nil {
		return failed
	}
	if _, known := errors.AsType[*fault.Error](err); known {
		return err
	}
	if cause := context.Cause(ctx); cause != nil {
		if !errors.Is(err, cause) {
			err = fmt.Errorf("%w (%w)", cause, err)
		}
		return fault.New(fault.Unavailable, "%w", err)
	}
	return imagefault.Damaged("%w", err)
}

// contentError is the error to return when reading the entries fails: that of the stream
// or of the sink, if they have failed, or else one of a damaged layer.
func (r *reader) contentError(ctx context.Context, err error) error {
	if failed := r.plain.failure(); failed != nil {
		return r.sourceError(ctx, failed)
	}
	if _, ok := errors.AsType[sinkError](err); ok {
		return err
	}
	return r.sourceError(ctx, err)
}

// notingReader is a reader that remembers its error. So an error of the stream can be
// distinguished from one of the decompressor or tar reader that reads it, perhaps in
// another goroutine.
type notingReader struct {
	from   io.Reader
	failed atomic.Pointer[error]
}

// Read implements io.Reader.
func (r *notingReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if err != nil && err != io.EOF {
		r.failed.Store(&err)
	}
	return n, err
}

// failure is the error of the reader itself; nil if there was none.
func (r *notingReader) failure() error {
	if failed := r.failed.Load(); failed != nil {
		return *failed
	}
	return nil
}
