package osimage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"go.podman.io/image/v5/pkg/blobinfocache/none"
	"go.podman.io/image/v5/pkg/compression"

	"machine-pivot/fault"
)

var errTooLong = fault.New(fault.BadInput, "it is longer than the manifest says")

// layerReader is one layer as a stream. Its content counts only after verify.
type layerReader struct {
	blob  *blobReader
	diff  hash.Hash
	plain noting // what is in the layer, decompressed
	close func()
}

// openLayer starts to read the nth layer of an image.
func (o *opened) openLayer(ctx context.Context, n int, watch watch, counted func(int)) (*layerReader, error) {
	if algorithm := o.blobs[n].Digest.Algorithm(); algorithm != "sha256" {
		return nil, fault.New(fault.BadInput, "its digest is of the unknown kind %q", algorithm)
	}
	var body io.ReadCloser
	var err error
	watch.during(func() { body, _, err = o.source.GetBlob(ctx, o.blobs[n], none.NoCache) })
	if err != nil {
		return nil, o.judge.classify(ctx, err, o.judge.fallback())
	}
	l := &layerReader{
		blob: &blobReader{from: body, sum: sha256.New(), watch: watch, size: o.blobs[n].Size, counted: counted},
		diff: sha256.New(),
	}
	plain, _, err := compression.AutoDecompress(l.blob)
	if err != nil {
		return nil, errors.Join(o.sourceError(ctx, l, err), body.Close())
	}
	l.plain.from = io.TeeReader(plain, l.diff)
	l.close = func() {
		watch.stop() // so that a read in the decompressor's goroutine returns
		// Their errors tell nothing: what counts was verified, or has failed already.
		_, _ = plain.Close(), body.Close()
	}
	return l, nil
}

// verify reads the layer to its end and compares both digests.
func (o *opened) verify(ctx context.Context, n int, l *layerReader) error {
	if _, err := io.Copy(io.Discard, &l.plain); err != nil {
		return o.sourceError(ctx, l, err)
	}
	if _, err := io.Copy(io.Discard, l.blob); err != nil {
		return o.sourceError(ctx, l, err)
	}
	if got, want := digestOf(l.blob.sum), o.blobs[n].Digest.String(); got != want {
		return damaged("its content has the digest %s", got)
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
		otherwise := fault.BadInput
		if o.judge.ref.remote() {
			otherwise = fault.Unavailable
		}
		return o.judge.classify(ctx, failed, otherwise)
	}
	if cause := context.Cause(ctx); cause != nil {
		return o.judge.classify(ctx, err, fault.Unavailable)
	}
	return damaged("%w", err)
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
