package ostree

import (
	"bufio"
	"fmt"
	"io"

	"github.com/klauspost/compress/flate"
)

// inflater decompresses the contents of .filez streams, one after the other: most
// objects are so small that making a new one would cost more than its work.
type inflater struct {
	in     *bufio.Reader
	out    io.ReadCloser
	buffer []byte
}

// copyBuffer is how much is decompressed, hashed and written at once, in bytes.
const copyBuffer = 128 << 10

func newInflater() *inflater {
	in := bufio.NewReader(nil)
	return &inflater{in: in, out: flate.NewReader(in), buffer: make([]byte, copyBuffer)}
}

// inflateContent does what h.copyContent does, with a compressed stream.
func (im *Import) inflateContent(h *fileHeader) func(io.Writer, io.Reader) error {
	return func(w io.Writer, r io.Reader) error {
		z, _ := im.inflaters.Get().(*inflater)
		if z == nil {
			z = newInflater()
		}
		defer im.inflaters.Put(z)
		return z.copy(h, w, r)
	}
}

func (z *inflater) copy(h *fileHeader, w io.Writer, r io.Reader) error {
	z.in.Reset(r)
	if !h.isLink() {
		if err := z.out.(flate.Resetter).Reset(z.in, nil); err != nil {
			return err
		}
		if err := z.inflate(h.size, w); err != nil {
			return err
		}
	}
	if _, err := z.in.ReadByte(); err != io.EOF {
		return fmt.Errorf("something follows its content")
	}
	return nil
}

// inflate copies exactly size bytes.
func (z *inflater) inflate(size uint64, w io.Writer) error {
	for copied := uint64(0); ; {
		n, err := z.out.Read(z.buffer)
		if copied += uint64(n); copied > size {
			return fmt.Errorf("it has more content than the %d bytes its header says", size)
		}
		if _, err := w.Write(z.buffer[:n]); err != nil {
			return err
		}
		if err == io.EOF && copied == size {
			return nil
		}
		if err == io.EOF {
			return fmt.Errorf("it has %d bytes of content, its header says %d", copied, size)
		}
		if err != nil {
			return err
		}
	}
}
