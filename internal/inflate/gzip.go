package inflate

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

// ErrGzip means that the data is not a gzip file.
var ErrGzip = errors.New("it is not a gzip file")

// Bits of a gzip header's flags.
const (
	flagCheck = 1 << (1 + iota)
	flagExtra
	flagName
	flagComment
	flagReserved
)

// Gzip reads a gzip file (RFC 1952), which may have several members. It verifies sizes and
// checksums.
type Gzip struct {
	decoder *Decoder
	rest    []byte // decompressed data that was not read yet
	sum     uint32 // of the member so far
	size    uint32 // of the member so far
	err     error
}

// NewGzip starts to read a gzip file. It reads the first header.
func NewGzip(from io.Reader) (*Gzip, error) {
	z := &Gzip{decoder: New()}
	return z, z.Reset(from)
}

// Reset starts to read another file, and reuses the memory.
func (z *Gzip) Reset(from io.Reader) error {
	z.decoder.Reset(from)
	z.rest, z.err = nil, nil
	return z.header()
}

// Read implements io.Reader.
func (z *Gzip) Read(p []byte) (int, error) {
	for len(z.rest) == 0 && z.err == nil {
		z.err = z.next()
	}
	n := copy(p, z.rest)
	z.rest = z.rest[n:]
	if n > 0 || len(p) == 0 {
		return n, nil
	}
	return 0, z.err
}

// next decompresses more data into rest.
func (z *Gzip) next() (err error) {
	z.rest, err = z.decoder.Next()
	if err == io.EOF {
		return z.trailer()
	}
	z.sum = crc32.Update(z.sum, crc32.IEEETable, z.rest)
	z.size += uint32(len(z.rest))
	return err
}

// trailer verifies the end of a member and starts the next one. It returns io.EOF if there is
// none.
func (z *Gzip) trailer() error {
	end, err := z.decoder.skip(8)
	if err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(end) != z.sum || binary.LittleEndian.Uint32(end[4:]) != z.size {
		return errors.New("the gzip file's checksum does not fit its content")
	}
	more, err := z.decoder.peek(1)
	if err != nil {
		return err
	}
	if len(more) == 0 {
		return io.EOF
	}
	z.decoder.restart()
	return z.header()
}

// header reads a member's header.
func (z *Gzip) header() error {
	z.sum, z.size = 0, 0
	head, err := z.decoder.skip(10)
	if err != nil {
		return err
	}
	flags := head[3]
	if head[0] != 0x1f || head[1] != 0x8b || head[2] != 8 || flags >= flagReserved {
		return ErrGzip
	}
	if flags&flagExtra != 0 {
		length, err := z.decoder.skip(2)
		if err != nil {
			return err
		}
		for n := binary.LittleEndian.Uint16(length); n > 0; n-- {
			if _, err := z.decoder.skip(1); err != nil {
				return err
			}
		}
	}
	for _, text := range []byte{flagName, flagComment} {
		for more := flags&text != 0; more; {
			c, err := z.decoder.skip(1)
			if err != nil {
				return err
			}
			more = c[0] != 0
		}
	}
	if flags&flagCheck != 0 {
		_, err = z.decoder.skip(2)
	}
	return err
}
