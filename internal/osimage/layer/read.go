// Package layer reads one layer of an OS image: from its compressed stream to the
// ostree objects in it, each of which a sink takes. It knows no registry and no
// image, and does no I/O of its own.
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

// Read reads a whole layer, hands what content finds in it to the content's sink,
// and compares the decompressed stream with its diff id ("sha256:…", from the
// image's config). What the sink has taken counts only if there is no error.
//
// Read closes the stream; that must make a read of it that is under way return.
// Errors of stream and sink are passed on as they are; a context that ended is
// fault.Unavailable; all else means that the layer is damaged, fault.BadInput.
func Read(ctx context.Context, compressed io.ReadCloser, diffID string, c Content, shared *Shared) error {
	r, err := open(ctx, compressed)
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

// reader is one layer as a stream, from its source to the plain tar in three
// goroutines.
type reader struct {
	source  noting
	fetched *ahead // of source
	diff    hash.Hash
	tar     *ahead
	plain   noting // of tar
	close   func()
}

// open starts to read a layer.
func open(ctx context.Context, compressed io.ReadCloser) (*reader, error) {
	r := &reader{source: noting{from: compressed}, diff: sha256.New()}
	r.fetched = newAhead(&r.source)
	endSource := func() {
		_ = compressed.Close() // what counts was read, or has failed already
		r.fetched.close()
	}
	plain, err := decompress(r.fetched)
	if err != nil {
		err = r.sourceError(ctx, err)
		endSource()
		return nil, err
	}
	r.tar = newAhead(io.TeeReader(plain, r.diff))
	r.plain.from = r.tar
	r.close = func() {
		endSource() // first, so that a read that is under way returns
		r.tar.close()
		_ = plain.Close()
	}
	return r, nil
}

// verify reads the layer to its end and compares its digest. That of the
// compressed stream is for the source to compare.
func (r *reader) verify(ctx context.Context, diffID string) error {
	switch _, err := io.CopyN(io.Discard, &r.plain, maxTrailer+1); err {
	case nil:
		return imagefault.Damaged("more than %d MiB follow the end of its tar stream", maxTrailer>>20)
	case io.EOF:
	default:
		return r.sourceError(ctx, err)
	}
	if _, err := io.Copy(io.Discard, r.fetched); err != nil {
		return r.sourceError(ctx, err)
	}
	if got := fmt.Sprintf("sha256:%x", r.diff.Sum(nil)); got != diffID {
		return imagefault.Damaged("its decompressed content has the digest %s, not %s as the image's config says", got, diffID)
	}
	return nil
}

// sourceError explains a failure to read a layer: by the source if that failed
// first, else the content is not what it should be.
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

// contentError explains why a layer's content could not be taken: the layer
// could not be read, the sink failed, or the tar stream or an object is wrong.
func (r *reader) contentError(ctx context.Context, err error) error {
	if failed := r.plain.failure(); failed != nil {
		return r.sourceError(ctx, failed)
	}
	if _, ok := errors.AsType[sinkError](err); ok {
		return err
	}
	return r.sourceError(ctx, err)
}

// noting is a reader that remembers its failure, so that it can be told from a
// failure of whoever was reading, in another goroutine perhaps.
type noting struct {
	from   io.Reader
	failed atomic.Pointer[error]
}

// Read implements io.Reader.
func (r *noting) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if err != nil && err != io.EOF {
		r.failed.Store(&err)
	}
	return n, err
}

// failure is what went wrong, whatever those who read made of that; nil if nothing did.
func (r *noting) failure() error {
	if failed := r.failed.Load(); failed != nil {
		return *failed
	}
	return nil
}
