package layer

import (
	"io"

	"machine-pivot/internal/guard"
)

// The number of blocks that a readAhead reads ahead, and the size of a block in bytes.
const (
	readAheadBlocks = 4
	readAheadSize   = 128 << 10
)

// readAhead reads a stream in a separate goroutine, some blocks ahead of its reader, so
// that fetching, decompressing and reading the objects of one layer run in parallel.
type readAhead struct {
	shared *Shared
	full   chan block
	empty  chan *[readAheadSize]byte // free buffers; nil stands for one that is not allocated yet
	stop   chan struct{}

	current block
	at      int // position in current.data
}

// block is a part of the stream. If err is not nil, the stream ended with it after data.
type block struct {
	data   []byte
	memory *[readAheadSize]byte // the buffer of data
	err    error
}

func newReadAhead(from io.Reader, shared *Shared) *readAhead {
	a := &readAhead{shared: shared, full: make(chan block, readAheadBlocks), empty: make(chan *[readAheadSize]byte, readAheadBlocks), stop: make(chan struct{})}
	for range readAheadBlocks {
		a.empty <- nil
	}
	guard.Start(func() error { a.fillOrFail(from); return nil })
	return a
}

// fillOrFail reads the stream to its end. It turns a panic in the stream's Read into an error.
func (a *readAhead) fillOrFail(from io.Reader) {
	defer close(a.full)
	if err := guard.Call(func() error { a.fill(from); return nil }); err != nil {
		a.full <- block{err: err} // does not block: the buffer that was being filled leaves room
	}
}

func (a *readAhead) fill(from io.Reader) {
	for {
		var buffer *[readAheadSize]byte
		select {
		case buffer = <-a.empty:
		case <-a.stop:
			return
		}
		if buffer == nil {
			buffer = a.shared.getBlock()
		}
		var n int
		var err error
		for n < len(buffer) && err == nil { // not io.ReadFull, which replaces io.EOF
			var more int
			more, err = from.Read(buffer[n:])
			n += more
		}
		a.full <- block{buffer[:n], buffer, err} // does not block: it has room for all buffers
		if err != nil {
			return
		}
	}
}

// Read implements io.Reader.
func (a *readAhead) Read(p []byte) (int, error) {
	for a.at == len(a.current.data) {
		if a.current.err != nil {
			return 0, a.current.err
		}
		if a.current.memory != nil {
			a.empty <- a.current.memory
			a.current.memory = nil
		}
		next, ok := <-a.full
		if !ok {
			return 0, io.ErrClosedPipe
		}
		a.current, a.at = next, 0
	}
	n := copy(p, a.current.data[a.at:])
	a.at += n
	return n, nil
}

// close stops the goroutine and waits for it. The caller must make a Read of the stream that
// is in progress return.
func (a *readAhead) close() {
	close(a.stop)
	for b := range a.full {
		a.shared.putBlock(b.memory)
	}
}

// release returns the buffers to the pool. It is called after close, when nothing reads from a
// any more.
func (a *readAhead) release() {
	a.shared.putBlock(a.current.memory)
	a.current, a.at = block{err: io.ErrClosedPipe}, 0
	close(a.empty)
	for b := range a.empty {
		a.shared.putBlock(b)
	}
}
