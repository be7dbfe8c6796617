package ostree

import (
	"io"

	"machine-pivot/internal/guard"
)

const (
	writeBehindBlocks = 4         // number of buffers
	writeBehindSize   = 128 << 10 // size of a buffer in bytes
	// writeBehindFrom is the object size, in bytes, from which a writeBehind is used.
	writeBehindFrom = 2 << 20
)

// writeBehind is a writer that buffers its data and writes it to another writer in a separate
// goroutine. So the next part of a large object is decompressed while the previous one is
// hashed and written.
type writeBehind struct {
	full   chan []byte
	empty  chan []byte
	ended  chan struct{}
	failed error // error of the other writer; valid once ended is closed

	current []byte
}

// withWriteBehind calls produce with a writer that passes its data on to to, and waits until
// all data are written. Errors of to are returned unchanged.
func withWriteBehind(to io.Writer, produce func(io.Writer) error) error {
	b := &writeBehind{full: make(chan []byte, writeBehindBlocks), empty: make(chan []byte, writeBehindBlocks), ended: make(chan struct{})}
	for range writeBehindBlocks {
		b.empty <- nil
	}
	guard.Start(func() error {
		defer close(b.ended)
		b.failed = guard.Call(func() error { return b.drain(to) })
		return b.failed
	})
	err := guard.Call(func() error { return produce(b) })
	if err == nil && len(b.current) > 0 {
		b.full <- b.current
	}
	close(b.full)
	<-b.ended
	if b.failed != nil {
		return b.failed
	}
	return err
}

func (b *writeBehind) drain(to io.Writer) error {
	for block := range b.full {
		if _, err := to.Write(block); err != nil {
			return err
		}
		b.empty <- block[:0]
	}
	return nil
}

// Write implements io.Writer.
func (b *writeBehind) Write(p []byte) (written int, err error) {
	for written < len(p) {
		if b.current == nil {
			select {
			case b.current = <-b.empty:
			case <-b.ended:
				return written, b.failed
			}
			if b.current == nil {
				b.current = make([]byte, 0, writeBehindSize)
			}
		}
		n := min(len(p)-written, cap(b.current)-len(b.current))
		b.current = append(b.current, p[written:written+n]...)
		written += n
		if len(b.current) == cap(b.current) {
			b.full <- b.current // does not block: the channel has room for all blocks
			b.current = nil
		}
	}
	return written, nil
}
