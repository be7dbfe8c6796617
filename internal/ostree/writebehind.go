package ostree

import (
	"io"

	"machine-pivot/internal/guard"
)

// Bounds of what is written behind: this many blocks of this many bytes.
const (
	behindBlocks = 4
	behindBlock  = 128 << 10
	// behindFrom is the size of an object that is worth it.
	behindFrom = 2 << 20
)

// behind is a writer that hands what it gets to another one in a goroutine of its
// own, some blocks later: of a large object the next part is decompressed while
// the last one is hashed and written.
type behind struct {
	full   chan []byte
	empty  chan []byte
	ended  chan struct{}
	failed error // why it ended, once it has

	current []byte
}

// writeBehind calls produce with a writer that is behind to, and waits until all of
// it is written. Failures of to come back as they are.
func writeBehind(to io.Writer, produce func(io.Writer) error) error {
	b := &behind{full: make(chan []byte, behindBlocks), empty: make(chan []byte, behindBlocks), ended: make(chan struct{})}
	for range behindBlocks {
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

func (b *behind) drain(to io.Writer) error {
	for block := range b.full {
		if _, err := to.Write(block); err != nil {
			return err
		}
		b.empty <- block[:0]
	}
	return nil
}

// Write implements io.Writer.
func (b *behind) Write(p []byte) (written int, err error) {
	for written < len(p) {
		if b.current == nil {
			select {
			case b.current = <-b.empty:
			case <-b.ended:
				return written, b.failed
			}
			if b.current == nil {
				b.current = make([]byte, 0, behindBlock)
			}
		}
		n := min(len(p)-written, cap(b.current)-len(b.current))
		b.current = append(b.current, p[written:written+n]...)
		written += n
		if len(b.current) == cap(b.current) {
			b.full <- b.current // has room: there are no more blocks than that
			b.current = nil
		}
	}
	return written, nil
}
