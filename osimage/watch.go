package osimage

import (
	"context"
	"fmt"
	"hash"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// watch gives up on a source that is silent: it cancels a context when one
// operation takes longer than patience. The library has no such limit, and a
// registry that accepts a connection and says nothing would hold us forever.
type watch struct {
	patience time.Duration
	cancel   context.CancelCauseFunc
}

func newWatch(ctx context.Context, patience time.Duration) (context.Context, watch) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, watch{patience: patience, cancel: cancel}
}

// during runs one operation under watch.
func (w watch) during(operation func()) {
	timer := time.AfterFunc(w.patience, func() {
		w.cancel(fmt.Errorf("%w: no data for %s", errSilent, w.patience))
	})
	defer timer.Stop()
	operation()
}

// stop ends the context: reads that are under way return.
func (w watch) stop() { w.cancel(nil) }

// blobReader reads a layer as it is in the source: it counts, hashes, bounds and
// watches. The decompressor may read it in a goroutine of its own.
type blobReader struct {
	from    io.Reader
	sum     hash.Hash
	watch   watch
	size    int64       // as the manifest says; -1 if it does not
	counted func(n int) // told of each read
	count   int64

	mu     sync.Mutex
	failed error // the first error that is not io.EOF
}

// Read implements io.Reader.
func (r *blobReader) Read(p []byte) (n int, err error) {
	r.watch.during(func() { n, err = r.from.Read(p) })
	r.sum.Write(p[:n])
	r.count += int64(n)
	r.counted(n)
	if r.size >= 0 && r.count > r.size {
		err = errTooLong
	}
	if err == io.EOF && r.count < r.size {
		err = fmt.Errorf("it ended after %d of %d bytes: %w", r.count, r.size, io.ErrUnexpectedEOF)
	}
	if err != nil && err != io.EOF {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.failed == nil {
			r.failed = err
		}
	}
	return n, err
}

// failure is what went wrong with the source, whatever the readers above made of it.
func (r *blobReader) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// meter counts the bytes of all layers and reports progress now and then.
type meter struct {
	total   int64
	fetched atomic.Int64
	objects func() int
	report  func(Progress)

	mu   sync.Mutex
	last time.Time
}

// reportEvery bounds how often progress is reported.
const reportEvery = 200 * time.Millisecond

func (m *meter) add(n int) {
	m.fetched.Add(int64(n))
	m.tell(false)
}

// tell reports progress if it is time to, or if it must.
func (m *meter) tell(must bool) {
	if m.report == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); must || now.Sub(m.last) >= reportEvery {
		m.last = now
		m.report(Progress{FetchedBytes: m.fetched.Load(), TotalBytes: m.total, Objects: m.objects(), Done: must})
	}
}
