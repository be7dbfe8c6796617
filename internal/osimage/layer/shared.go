package layer

import (
	"io"
	"sync"
	"sync/atomic"

	"machine-pivot/internal/inflate"
	"machine-pivot/internal/osimage/imagefault"
)

// Bounds for all layers of one import together.
const (
	maxBuffered = 1 << 20 // bytes of an object that another goroutine may store from memory
	maxInFlight = 16      // how many such objects there are at once
	// maxKept bounds the extended attributes that layers being read keep for files which
	// refer to them later, in bytes.
	maxKept = 32 << 20
	// maxObjects is how many objects the layers may bring. Each is remembered by its
	// checksum, in some 300 bytes; large systems have a fifth of that many.
	maxObjects = 1 << 20
	// maxNames is how much memory the names in derived layers may take, in bytes: that
	// of about 200,000 files. Large systems have half of that many.
	maxNames = 48 << 20
)

// Shared are the resources that the layers of one import share: buffers for small objects,
// memory for reading that one layer leaves to the next, and counters for the bounds above.
type Shared struct {
	buffers chan []byte
	blocks  sync.Pool    // of *[readAheadSize]byte
	gzips   sync.Pool    // of *inflate.Gzip
	kept    atomic.Int64 // bytes
	objects atomic.Int64
	names   atomic.Int64 // bytes
}

// NewShared makes room for 16 objects of at most 1 MiB.
func NewShared() *Shared {
	s := &Shared{buffers: make(chan []byte, maxInFlight)}
	for range maxInFlight {
		s.buffers <- nil
	}
	return s
}

// giveBack takes a layer that has been read off the counters: its extended attributes are
// freed. If it failed, its objects and names do not count either, since the layer may be
// read again from another endpoint.
func (f *feeder) giveBack(err error) {
	f.shared.kept.Add(-f.kept)
	if err != nil {
		f.shared.objects.Add(-f.objects)
		f.shared.names.Add(-f.names)
	}
}

// keep counts n bytes of extended attributes.
func (f *feeder) keep(n int64) error {
	f.kept += n
	if f.shared.kept.Add(n) > maxKept {
		return imagefault.Damaged("its layers have more than %d bytes of extended attributes that files refer to", maxKept)
	}
	return nil
}

// count counts an object.
func (f *feeder) count() error {
	f.objects++
	if f.shared.objects.Add(1) > maxObjects {
		return imagefault.Damaged("it has more than %d objects", maxObjects)
	}
	return nil
}

// holdNames counts n bytes of names in derived layers.
func (f *feeder) holdNames(n int64) error {
	f.names += n
	if f.shared.names.Add(n) > maxNames {
		return imagefault.Damaged("the names in its derived layers take more than %d bytes of memory", maxNames)
	}
	return nil
}

// block is the memory of one block of a readAhead.
func (s *Shared) block() *[readAheadSize]byte {
	if b, _ := s.blocks.Get().(*[readAheadSize]byte); b != nil {
		return b
	}
	return new([readAheadSize]byte)
}

// giveBlock gives the memory of a block back, if there is any.
func (s *Shared) giveBlock(b *[readAheadSize]byte) {
	if b != nil {
		s.blocks.Put(b)
	}
}

// gzip reads a gzip file. Close leaves the decompressor to the next layer.
func (s *Shared) gzip(from io.Reader) (io.ReadCloser, error) {
	z, _ := s.gzips.Get().(*inflate.Gzip)
	if z == nil {
		z, err := inflate.NewGzip(from)
		return lentGzip{z, s}, err
	}
	return lentGzip{z, s}, z.Reset(from)
}

// lentGzip is a decompressor that is given back when it is closed, which is once.
type lentGzip struct {
	*inflate.Gzip
	to *Shared
}

// Close implements io.Closer.
func (z lentGzip) Close() error {
	z.to.gzips.Put(z.Gzip)
	return nil
}
