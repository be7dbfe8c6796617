package source

import (
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"io"

	digestlib "github.com/opencontainers/go-digest"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/imagefault"
)

// errClosed is the error of a Read after Close.
var errClosed = errors.New("it was closed")

// blob is the stream that openBlob returns.
type blob struct {
	stream
	from   *download // the current try; nil between tries
	sum    hash.Hash
	offset int64  // bytes read so far
	tail   []byte // the last tailSize bytes read

	parts bool      // the source may support ranges
	short truncated // the last failure of this kind
}

// openBlob returns the image's nth layer as a stream, compressed as in the source. The first
// Read opens it. After a transient failure the stream resumes where it stopped. It ends with
// io.EOF only if its size and digest match the manifest. Its errors have a fault.Kind. Close
// may be called while another goroutine is in Read, which then returns; Close never fails.
func (i *Image) openBlob(ctx context.Context, n int, meter Meter) *blob {
	return &blob{stream: newStream(ctx, i, i.blobs[n], meter), sum: sha256.New(), parts: i.blobs[n].Size > 0}
}

// verifyRest reads the rest of a stream that was closed before its end, and returns an error unless the whole has the size
// and the digest that the manifest says. The stream cannot be read afterwards.
func (b *blob) verifyRest(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended == io.EOF {
		return nil
	}
	rest := &blob{stream: newStream(ctx, b.image, b.BlobInfo, b.meter), sum: b.sum, offset: b.offset, tail: b.tail, parts: b.parts}
	defer rest.Close()
	_, err := io.Copy(io.Discard, rest)
	return err
}

// Close implements io.Closer.
func (b *blob) Close() error {
	b.cancel(errClosed)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop()
	return nil
}

// Read implements io.Reader.
func (b *blob) Read(p []byte) (n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n == 0 && b.ended == nil && len(p) > 0 {
		if n, err = b.next(p); err != nil {
			b.ended = b.endTry(err)
		}
	}
	return n, b.ended
}

// next reads from the current try, after starting one if there is none.
func (b *blob) next(p []byte) (int, error) {
	if b.from == nil {
		if err := b.reopen(); err != nil {
			return 0, err
		}
	}
	n, err := b.from.read(p)
	if b.offset+int64(n) > b.Size {
		return 0, imagefault.Damaged("data follows after the %d bytes that the manifest says", b.Size)
	}
	b.meter.Fetched(n)
	b.record(p[:n])
	if err != nil && err != io.EOF {
		err = b.reading(b.from.ctx, err)
	}
	return n, err
}

// record updates the state of the stream for bytes that were read.
func (b *blob) record(p []byte) {
	b.sum.Write(p)
	b.offset += int64(len(p))
	b.tries.fresh += int64(len(p))
	b.tail = append(b.tail, p[max(0, len(p)-tailSize):]...)
	b.tail = b.tail[max(0, len(b.tail)-tailSize):]
}

// endTry ends the current try after an error. It returns nil if there will be another try;
// otherwise the stream ends with the returned error, which may be io.EOF.
func (b *blob) endTry(err error) error {
	b.drop()
	switch ended := err == io.EOF; {
	case b.offset == b.Size && (ended || fault.KindOf(err).Transient()):
		return b.verify() // a failure after the last byte does not matter
	case ended:
		err = b.reading(b.ctx, truncated{b.offset, b.Size})
	}
	return b.retry(err)
}

// verify compares the digest of all bytes that were read. It returns io.EOF if it matches.
func (b *blob) verify() error {
	if got := digestlib.NewDigest(digestlib.SHA256, b.sum); got != b.Digest {
		return imagefault.Damaged("its %d bytes have the digest %s", b.offset, got)
	}
	return io.EOF
}

// drop closes the current try, if there is one.
func (b *blob) drop() {
	if b.from != nil {
		b.from.close()
		b.from = nil
	}
}
