package osimage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"machine-pivot/fault"
)

// layerReader is one layer as a stream, from the network to the plain tar in three
// goroutines. Its content counts only after verify.
type layerReader struct {
	blob    *blob
	fetched *ahead // of blob
	diff    hash.Hash
	tar     *ahead
	plain   noting // of tar
	close   func()
}

// openLayer starts to read the image's nth layer.
func (i *importer) openLayer(ctx context.Context, n int) (*layerReader, error) {
	blob, err := i.openBlob(ctx, n)
	if err != nil {
		return nil, err
	}
	l := &layerReader{blob: blob, fetched: newAhead(blob), diff: sha256.New()}
	plain, err := decompress(l.fetched)
	if err != nil {
		err = i.image.sourceError(ctx, l, err)
		blob.Close()
		l.fetched.close()
		return nil, err
	}
	l.tar = newAhead(io.TeeReader(plain, l.diff))
	l.plain.from = l.tar
	l.close = func() {
		blob.Close() // so that a read that is under way returns
		l.fetched.close()
		l.tar.close()
		_ = plain.Close() // its error tells nothing: what counts was verified, or has failed already
	}
	return l, nil
}

// verify reads the layer to its end and compares both digests.
func (o *opened) verify(ctx context.Context, n int, l *layerReader) error {
	switch _, err := io.CopyN(io.Discard, &l.plain, maxTrailer+1); err {
	case nil:
		return damaged("more than %d MiB follow the end of its tar stream", maxTrailer>>20)
	case io.EOF:
	default:
		return o.sourceError(ctx, l, err)
	}
	if _, err := io.Copy(io.Discard, l.fetched); err != nil {
		return o.sourceError(ctx, l, err)
	}
	if got, want := digestOf(l.diff), o.diffs[n].String(); got != want {
		return damaged("its decompressed content has the digest %s, not %s as the image's config says", got, want)
	}
	return nil
}

// sourceError explains a failure to read a layer: by the source if that failed
// first, else the content is not what it should be.
func (o *opened) sourceError(ctx context.Context, l *layerReader, err error) error {
	if failed := l.blob.failure(); failed != nil {
		return failed
	}
	if cause := context.Cause(ctx); cause != nil {
		return o.judge.classify(ctx, err, fault.Unavailable)
	}
	return damaged("%w", err)
}

// contentError explains why a layer's content could not be taken: the layer
// could not be read, the repository failed, or the tar stream or an object is wrong.
func (o *opened) contentError(ctx context.Context, l *layerReader, err error) error {
	if l.plain.failed != nil {
		return o.sourceError(ctx, l, l.plain.failed)
	}
	if _, ok := errors.AsType[sinkError](err); ok {
		return o.judge.writing(err)
	}
	return o.sourceError(ctx, l, err)
}

func damaged(format string, args ...any) error {
	return fault.New(fault.BadInput, format, args...).WithHint("the image is damaged; push it again")
}

func digestOf(sum hash.Hash) string { return "sha256:" + hex.EncodeToString(sum.Sum(nil)) }

// noting is a reader that remembers its failure, so that it can be told from a
// failure of whoever was reading.
type noting struct {
	from   io.Reader
	failed error
}

// Read implements io.Reader.
func (r *noting) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if err != nil && err != io.EOF {
		r.failed = err
	}
	return n, err
}

// label says which layer an error is about.
func (o *opened) label(n int, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("layer %d of %d, %s: %w", n+1, len(o.blobs), o.blobs[n].Digest, err)
}
