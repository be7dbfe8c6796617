package layer

import (
	"context"
	"io"
	"sync"
	"sync/atomic"

	"machine-pivot/internal/inflate"
	"machine-pivot/internal/osimage/imagefault"
)

// Limits for all layers of one import together.
const (
	// maxBuffered is the size, in bytes, up to which an object is buffered and stored by another goroutine. maxLarge is
	// the number of such objects that are too large for a batch.
	maxBuffered = 1 << 20
	maxLarge    = 4
	// maxDecoding is how many layers are decompressed at once: enough to keep the processors busy
	// while one waits for the network.
	maxDecoding = 4
	// maxKept bounds the extended attributes, in bytes, that are kept during the reading of
	// layers for files that refer to them later.
	maxKept = 32 << 20
	// maxObjects is the maximum number of objects in all layers. The record of each takes some
	// 300 bytes; large systems have a fifth of that number.
	maxObjects = 1 << 20
	// maxUnpacked bounds what a layer unpacks to, and maxUnpackedImage what all layers do, in bytes. Both are larger than
	// any system, but no decompression bomb keeps the processors busy for hours. Holes of sparse files count, because they
	// are read, hashed and stored like other content, and so does content that the repository has already.
	maxUnpacked      = 64 << 30
	maxUnpackedImage = 256 << 30
)

// Shared holds the resources that the layers of one import share: buffers for small objects,
// memory that is reused from layer to layer, and counters for the limits above.
type Shared struct {
	batches chan *batch
	large   chan []byte   // buffers of up to maxBuffered bytes
	turns   chan struct{} // has one value for each layer that is being decompressed
	blocks  sync.Pool     // of *[readAheadSize]byte
	gzips   sync.Pool     // of *inflate.Gzip
	kept    atomic.Int64  // bytes
	objects atomic.Int64
	names   nameCounter

	unpacked atomic.Int64 // bytes
}

// NewShared returns a Shared with buffers for maxBatches batches and maxLarge large objects.
func NewShared() *Shared {
	s := &Shared{batches: make(chan *batch, maxBatches), large: make(chan []byte, maxLarge), turns: make(chan struct{}, maxDecoding)}
	for range maxBatches {
		s.batches <- &batch{}
	}
	for range maxLarge {
		s.large <- nil
	}
	return s
}

// wait waits until a layer may be decompressed. done ends its turn.
func (s *Shared) wait(ctx context.Context) (done func(), err error) {
	select {
	case s.turns <- struct{}{}:
		return func() { <-s.turns }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// uncount subtracts a layer that has been read from the counters: its extended attributes are
// freed. If it failed, the rest is subtracted too, because the layer may be read again from
// another endpoint.
func (f *feeder) uncount(err error) {
	f.shared.kept.Add(-f.kept)
	if err != nil {
		f.shared.objects.Add(-f.objects)
		f.shared.names.bytes.Add(-f.names)
		f.shared.unpacked.Add(-f.unpacked)
	}
}

// countXattrs counts n bytes of extended attributes.
func (f *feeder) countXattrs(n int64) error {
	f.kept += n
	if f.shared.kept.Add(n) > maxKept {
		return imagefault.TooLarge("its layers have more than %d bytes of extended attributes that files refer to", maxKept)
	}
	return nil
}

// countObject counts an object.
func (f *feeder) countObject() error {
	f.objects++
	if f.shared.objects.Add(1) > maxObjects {
		return imagefault.TooLarge("it has more than %d objects", maxObjects)
	}
	return nil
}

// countNames counts n bytes of names in derived layers.
func (f *feeder) countNames(n int64) error {
	f.names += n
	return f.shared.names.count(n)
}

// countUnpacked counts an entry with content of size bytes, which follows the first read bytes of a
// layer's tar stream. A layer unpacks to the bytes of its stream, or to more if that leaves out holes.
func (f *feeder) countUnpacked(read, size int64) error {
	before := max(f.unpacked, read)
	if size > maxUnpacked-before {
		return imagefault.TooLarge("it unpacks to more than %d GiB", maxUnpacked>>30)
	}
	more := before + size - f.unpacked
	f.unpacked += more
	if f.shared.unpacked.Add(more) > maxUnpackedImage {
		return imagefault.TooLarge("its layers unpack to more than %d GiB together", maxUnpackedImage>>30)
	}
	return nil
}

// getBlock returns a buffer for one block of a readAhead.
func (s *Shared) getBlock() *[readAheadSize]byte {
	if b, _ := s.blocks.Get().(*[readAheadSize]byte); b != nil {
		return b
	}
	return new([readAheadSize]byte)
}

// putBlock returns a buffer to the pool, unless it is nil.
func (s *Shared) putBlock(b *[readAheadSize]byte) {
	if b != nil {
		s.blocks.Put(b)
	}
}

// gzip returns a reader of a gzip stream. Its Close leaves the decompressor to the next layer.
func (s *Shared) gzip(from io.Reader) (io.ReadCloser, error) {
	z, _ := s.gzips.Get().(*inflate.Gzip)
	if z == nil {
		z, err := inflate.NewGzip(from)
		return pooledGzip{z, s}, err
	}
	return pooledGzip{z, s}, z.Reset(from)
}

// pooledGzip is a decompressor that Close returns to the pool. It must be closed only once.
type pooledGzip struct {
	*inflate.Gzip
	to *Shared
}

// Close implements io.Closer.
func (z pooledGzip) Close() error {
	z.to.gzips.Put(z.Gzip)
	return nil
}
