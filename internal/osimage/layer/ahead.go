package layer

import (
	"io"

	"machine-pivot/internal/guard"
)

// Bounds of what is read ahead: this many blocks of this many bytes.
const (
	aheadBlocks = 8
	aheadBlock  = 256 << 10
)

// ahead reads a stream in a goroutine of its own, some blocks before its reader:
// the network, the decompressor and the objects of one layer then each have a
// processor.
type ahead struct {
	full  chan block
	empty chan []byte
	stop  chan struct{}

	current block
	at      int // of current.data
}

// block is some data, and why there is no more.
type block struct {
	data []byte
	err  error
}

func newAhead(from io.Reader) *ahead {
	a := &ahead{full: make(chan block, aheadBlocks), empty: make(chan []byte, aheadBlocks), stop: make(chan struct{})}
	for range aheadBlocks {
		a.empty <- nil
	}
	guard.Start(func() error { a.fillOrFail(from); return nil })
	return a
}

// fillOrFail reads the stream to its end. A panic of whoever is read from is an
// error of the stream.
func (a *ahead) fillOrFail(from io.Reader) {
	defer close(a.full)
	if err := guard.Call(func() error { a.fill(from); return nil }); err != nil {
		a.full <- block{nil, err} // has room: the buffer that was to be filled is missing
	}
}

func (a *ahead) fill(from io.Reader) {
	for {
		var buffer []byte
		select {
		case buffer = <-a.empty:
		case <-a.stop:
			return
		}
		if buffer == nil {
			buffer = make([]byte, aheadBlock)
		}
		var n int
		var err error
		for n < len(buffer) && err == nil { // not io.ReadFull, which hides which error ended it
			var more int
			more, err = from.Read(buffer[n:])
			n += more
		}
		a.full <- block{buffer[:n], err} // has room: there are no more buffers than that
		if err != nil {
			return
		}
	}
}

// Read implements io.Reader.
func (a *ahead) Read(p []byte) (int, error) {
	for a.at == len(a.current.data) {
		if a.current.err != nil {
			return 0, a.current.err
		}
		if a.current.data != nil {
			a.empty <- a.current.data[:cap(a.current.data)]
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

// close ends the goroutine and waits for it. A read that is under way must be
// made to return by other means.
func (a *ahead) close() {
	close(a.stop)
	for range a.full {
	}
}
