// Package layer reads the layers of an OS image: it decompresses a stream, and puts each ostree object or file in it into
// a sink. It merges a base commit and its derived layers into one tree, as a container of the image sees it, and labels
// the tree with its own SELinux policy. It does no I/O itself and does not depend on a registry.
//
// Formats. Streams are gzip, zstd or plain, detected by their first bytes. They contain a tar stream (ustar, PAX or
// GNU, as read by archive/tar). In a legacy image (machine-os-content) it has files of an archive repository below
// srv/repo. In an ostree-native container it has files as written by crates/ostree-ext/src/tar/export.rs, with extended
// attributes in either of its two forms.
//
// Merge. The rules are those of ostree-ext (crates/ostree-ext/src/container/store.rs) and of libostree's checkout
// (ostree-repo-checkout.c), except where those lose or damage files of an image; docs/dev/import.md lists the differences.
// For a plain image the base is empty.
//
// Limits. A layer unpacks to at most 64 GiB, with the holes of sparse files, and has at most 16 MiB after its tar
// stream. All layers of an import unpack to at most 256 GiB. A zstd window has at most 128 MiB, a legacy layer at most
// 1024 refs, a file at most 1 MiB of extended attributes. Memory is bounded: four blocks of 128 KiB per layer, and four
// more while it is decompressed, as four layers are at once. All layers of an import (Shared) have 8 batches of small
// objects with 256 KiB each, 4 objects of at most 1 MiB, and 32 MiB of extended attributes. They have a record of each
// object, of which there are at most 1,048,576. Larger objects are streamed. A path
// has at most 4,095 bytes and a name 255; names take at most 40 MiB of memory.
package layer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync/atomic"

	"github.com/klauspost/compress/zstd"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/imagefault"
)

// Read reads a whole layer, passes its entries to c, and verifies the decompressed stream's diff ID ("sha256:…", from
// the image's config; "" if the stream itself verifies it). The objects that c has put into its sink may be used only
// if Read returns nil.
//
// The diff ID of a layer of objects is not verified, because it would add nothing. The source verifies the digest of
// the compressed stream, and the sink the checksum of each object, which also finds errors of the decompressor.
//
// Read closes the stream. Its Close must make a Read in progress return. Errors of the
// stream and the sink are returned unchanged. If the context has ended, the error is
// fault.Unavailable; all other errors mean a damaged layer and are fault.BadInput.
func Read(ctx context.Context, compressed io.ReadCloser, diffID string, c Content, shared *Shared) error {
	if c.ofObjects() {
		diffID = ""
	}
	r, err := startReading(ctx, compressed, diffID, shared)
	if err != nil {
		return err
	}
	defer r.close()
	if err := readTar(ctx, &r.plain, shared, c); err != nil {
		return r.contentError(ctx, err)
	}
	if err := r.verify(ctx); err != nil {
		return err
	}
	return c.ended()
}

// reader is the pipeline from a layer's source to its plain tar stream. Fetching and
// decompressing run in separate goroutines.
type reader struct {
	source     errorRecorder
	compressed *readAhead // reads source
	diffID     string     // "": not verified
	diff       hash.Hash  // nil if diffID is ""
	tar        *readAhead
	plain      errorRecorder // reads tar
	close      func()
}

// startReading starts to read a layer. It is fetched at once, as far as its buffers reach, and
// decompressed in its turn.
func startReading(ctx context.Context, compressed io.ReadCloser, diffID string, shared *Shared) (*reader, error) {
	r := &reader{source: errorRecorder{from: compressed}, diffID: diffID}
	r.compressed = newReadAhead(&r.source, shared)
	endSource := func() {
		_ = compressed.Close() // its error is irrelevant: everything was read, or an earlier error is returned
		r.compressed.close()
	}
	done, err := shared.wait(ctx)
	if err != nil {
		err = r.sourceError(ctx, err)
		endSource()
		return nil, err
	}
	plain, err := decompress(r.compressed, shared)
	if err != nil {
		err = r.sourceError(ctx, err)
		endSource()
		done()
		return nil, err
	}
	content := io.Reader(plain)
	if diffID != "" {
		r.diff = sha256.New()
		content = io.TeeReader(plain, r.diff)
	}
	r.tar = newReadAhead(content, shared)
	r.plain.from = r.tar
	r.close = func() {
		endSource() // first, so that a Read of the source in progress returns
		r.tar.close()
		_ = plain.Close()
		r.tar.release()
		r.compressed.release() // after the decompressor, which was reading from it
		done()
	}
	return r, nil
}

// verify reads the layer to its end and compares the digest of the decompressed stream, if it is
// to be verified. The source verifies the digest of the compressed stream.
func (r *reader) verify(ctx context.Context) error {
	switch _, err := io.CopyN(io.Discard, &r.plain, maxTrailer+1); err {
	case nil:
		return imagefault.TooLarge("more than %d MiB follow the end of its tar stream", maxTrailer>>20)
	case io.EOF:
	default:
		return r.sourceError(ctx, err)
	}
	if _, err := io.Copy(io.Discard, r.compressed); err != nil {
		return r.sourceError(ctx, err)
	}
	if r.diffID == "" {
		return nil
	}
	if got := fmt.Sprintf("sha256:%x", r.diff.Sum(nil)); got != r.diffID {
		return imagefault.Misbuilt("its decompressed content has the digest %s, not %s as the image's config says", got, r.diffID)
	}
	return nil
}

// sourceError returns the error to report for a failure to read a layer: the source's if it has failed, else a
// cancelled context's, else a damaged layer's.
func (r *reader) sourceError(ctx context.Context, err error) error {
	if failed := r.source.failure(); failed != nil {
		return failed
	}
	if _, known := errors.AsType[*fault.Error](err); known {
		return err
	}
	if errors.Is(err, zstd.ErrWindowSizeExceeded) {
		return imagefault.TooLarge("%w, of %d MiB", err, maxWindow>>20)
	}
	if cause := context.Cause(ctx); cause != nil {
		if !errors.Is(err, cause) {
			err = fmt.Errorf("%w (%w)", cause, err)
		}
		return fault.New(fault.Unavailable, "%w", err)
	}
	return imagefault.Damaged("%w", err)
}

// contentError returns the error to report when reading the entries fails: the stream's or the sink's if one of them
// has failed, else a damaged layer's.
func (r *reader) contentError(ctx context.Context, err error) error {
	if failed := r.plain.failure(); failed != nil {
		return r.sourceError(ctx, failed)
	}
	if _, ok := errors.AsType[sinkError](err); ok {
		return err
	}
	return r.sourceError(ctx, err)
}

// errorRecorder is a reader that records its error. So an error of the stream can be
// distinguished from an error of the decompressor or tar reader on top, which may run in
// another goroutine.
type errorRecorder struct {
	from   io.Reader
	failed atomic.Pointer[error]
}

// Read implements io.Reader.
func (r *errorRecorder) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if err != nil && err != io.EOF {
		r.failed.Store(&err)
	}
	return n, err
}

// failure returns the recorded error, or nil if there was none.
func (r *errorRecorder) failure() error {
	if failed := r.failed.Load(); failed != nil {
		return *failed
	}
	return nil
}
