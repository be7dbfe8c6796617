package source

import (
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"sync"

	digestlib "github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/types"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/osimage/imagefault"
)

// errClosed is why a stream ends that was closed before its end.
var errClosed = errors.New("it was closed")

// blob is what openBlob promises.
type blob struct {
	types.BlobInfo
	image *Image
	meter Meter

	ctx    context.Context // of the whole stream
	cancel context.CancelCauseFunc

	mu     sync.Mutex        // held while reading
	from   *download         // nil between tries
	source types.ImageSource // of the last try
	sum    hash.Hash
	offset int64  // bytes read so far
	tail   []byte // the last of them
	ended  error  // io.EOF, or why it failed

	parts    bool      // the source may have parts of the blob
	failures int       // in a row
	fresh    int64     // bytes since the last of them
	short    truncated // the last one that was of this kind
	denied   int64     // where the last one was of this kind
}

// openBlob makes the stream of the image's nth layer, compressed as it is in the
// source, which is first asked by Read. It goes on where it stopped after a
// transient failure, and ends with io.EOF only if size and digest are those of the
// manifest. Its errors have their kind. Close may be called while another
// goroutine reads, which makes that return; it never fails.
func (i *Image) openBlob(ctx context.Context, n int, meter Meter) io.ReadCloser {
	info := i.blobs[n]
	b := &blob{BlobInfo: info, image: i, meter: meter, sum: sha256.New(), parts: info.Size > 0, denied: -1}
	b.ctx, b.cancel = context.WithCancelCause(ctx)
	return b
}

// Close implements io.Closer. A Read under way returns.
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
			b.ended = b.settle(err)
		}
	}
	return n, b.ended
}

// next reads from the present try, or begins one.
func (b *blob) next(p []byte) (int, error) {
	if b.from == nil {
		if err := b.reopen(); err != nil {
			return 0, err
		}
	}
	n, err := b.from.read(p)
	if b.Size >= 0 && b.offset+int64(n) > b.Size {
		return 0, imagefault.Damaged("data follows after the %d bytes that the manifest says", b.Size)
	}
	b.meter.Fetched(n)
	b.take(p[:n])
	if err != nil && err != io.EOF {
		err = b.reading(b.from.ctx, err)
	}
	return n, err
}

// take notes what was read.
func (b *blob) take(p []byte) {
	b.sum.Write(p)
	b.offset += int64(len(p))
	b.fresh += int64(len(p))
	b.tail = append(b.tail, p[max(0, len(p)-tailSize):]...)
	b.tail = b.tail[max(0, len(b.tail)-tailSize):]
}

// settle says how the stream ends after an error of a try, if it does.
func (b *blob) settle(err error) error {
	b.drop()
	switch ended := err == io.EOF; {
	case ended && b.Size < 0, b.offset == b.Size && (ended || fault.KindOf(err).Transient()):
		return b.verify() // trouble after the last byte is none
	case ended:
		err = b.reading(b.ctx, truncated{b.offset, b.Size})
	}
	return b.retry(err)
}

// verify compares the digest of all that was read.
func (b *blob) verify() error {
	if got := digestlib.NewDigest(digestlib.SHA256, b.sum); got != b.Digest {
		return imagefault.Damaged("its %d bytes have the digest %s", b.offset, got)
	}
	return io.EOF
}

// drop ends the present try.
func (b *blob) drop() {
	if b.from != nil {
		b.from.close()
		b.from = nil
	}
}
