package ostree

import (
	"bufio"
	"io"

	"machine-pivot/internal/guard"
)

const (
	writeBehindSize = 128 << 10 // size of both buffers in bytes
	// writeBehindFrom is the object size, in bytes, from which a writeBehind is used.
	writeBehindFrom = 2 << 20
)

// withWriteBehind calls produce with a writer that passes its data on to another one in a separate goroutine, and waits
// until all data are written. So the next part of a large object is decompressed while the previous one is hashed and
// written. Errors of to are returned unchanged.
func withWriteBehind(to io.Writer, produce func(io.Writer) error) error {
	out, in := io.Pipe()
	written := guard.Start(func() error {
		err := guard.Call(func() error {
			_, err := io.CopyBuffer(to, out, make([]byte, writeBehindSize))
			return err
		})
		_ = out.CloseWithError(err) // always nil
		return err
	})
	err := guard.Call(func() error {
		buffer := bufio.NewWriterSize(in, writeBehindSize)
		if err := produce(buffer); err != nil {
			return err
		}
		return buffer.Flush()
	})
	_ = in.CloseWithError(err) // always nil
	if failed := <-written; failed != nil {
		return failed
	}
	return err
}
