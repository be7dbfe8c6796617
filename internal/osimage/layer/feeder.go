package layer

import (
	"bytes"
	"context"
	"io"

	"machine-pivot/internal/guard"
)

// feeder puts the objects of one layer into the sink, and counts them.
type feeder struct {
	group  *guard.Group
	shared *Shared
	jobs   chan func() error // to goroutines of the group that wait for work
	batch  *batch            // the small objects that no goroutine stores yet, or nil

	// The share of this layer in the counters of shared.
	kept     int64 // bytes
	objects  int64
	names    int64 // bytes
	unpacked int64 // bytes
}

// feed calls add with an object's body. A small body is read into memory, and add is
// called in another goroutine; a large body is streamed, and feed waits for add. The type of
// the reader lets add find the maximum size.
func (f *feeder) feed(ctx context.Context, size int64, body io.Reader, add func(io.Reader) error) error {
	if err := f.countObject(); err != nil {
		return err
	}
	switch {
	case size > maxBuffered:
		return blameSink(add(&io.LimitedReader{R: body, N: size}))
	case size > batchSize:
		return f.feedLarge(ctx, size, body, add)
	}
	b, err := f.batchFor(ctx, int(size))
	if err != nil {
		return err
	}
	data := b.take(int(size))
	if _, err := io.ReadFull(body, data); err != nil {
		return err
	}
	b.adds = append(b.adds, func() error { return blameSink(add(bytes.NewReader(data))) })
	return nil
}

// feedLarge feeds an object that is larger than a batch.
func (f *feeder) feedLarge(ctx context.Context, size int64, body io.Reader, add func(io.Reader) error) error {
	var buffer []byte
	select {
	case buffer = <-f.shared.large:
	case <-ctx.Done():
		return ctx.Err()
	}
	if buffer == nil {
		buffer = make([]byte, maxBuffered)
	}
	if _, err := io.ReadFull(body, buffer[:size]); err != nil {
		f.shared.large <- buffer
		return err
	}
	f.dispatch(func() error {
		defer func() { f.shared.large <- buffer }()
		return blameSink(add(bytes.NewReader(buffer[:size])))
	})
	return nil
}

// dispatch gives a job to a waiting goroutine, or starts a new one. Goroutines are reused,
// because a new one for each job would have to grow its stack each time.
func (f *feeder) dispatch(job func() error) {
	select {
	case f.jobs <- job:
	default:
		f.group.Start(func() error {
			for more := true; more; job, more = <-f.jobs {
				if err := job(); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

const (
	batchSize  = 256 << 10 // bytes of the objects in a batch
	batchCount = 64        // number of objects in a batch
	// maxBatches is the number of batches. Each layer that is decompressed holds one, and waits for
	// the next one only after it has given that to be stored; so more than maxDecoding never block.
	maxBatches = 8
)

// batch is a number of small objects, which one goroutine stores in a row. For half of all objects, waking a goroutine
// would cost as much as storing the object.
type batch struct {
	memory *[batchSize]byte
	used   int
	adds   []func() error
}

// take returns memory for an object.
func (b *batch) take(size int) []byte {
	b.used += size
	return b.memory[b.used-size : b.used : b.used]
}

// store stores the objects.
func (b *batch) store() error {
	for _, add := range b.adds {
		if err := add(); err != nil {
			return err
		}
	}
	return nil
}

// batchFor returns the current batch or, if it has no room for an object, a new one.
func (f *feeder) batchFor(ctx context.Context, size int) (*batch, error) {
	if b := f.batch; b != nil && (b.used+size > batchSize || len(b.adds) == batchCount) {
		f.flush()
	}
	if f.batch == nil {
		select {
		case f.batch = <-f.shared.batches:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if f.batch.memory == nil {
		f.batch.memory = new([batchSize]byte)
	}
	return f.batch, nil
}

// flush has the current batch stored.
func (f *feeder) flush() {
	b := f.batch
	f.batch = nil
	if b == nil {
		return
	}
	f.dispatch(func() error {
		defer func() {
			clear(b.adds)
			b.used, b.adds = 0, b.adds[:0]
			f.shared.batches <- b
		}()
		return b.store()
	})
}

// end has the last objects stored, even if reading the layer has failed: an interrupted import
// continues with them. No more objects follow.
func (f *feeder) end() {
	f.flush()
	close(f.jobs)
}
