package rehearse

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// zstdFrame reads the bytes of one frame (RFC 8878, 3.1.1), and none of what follows: a decoder reads ahead.
type zstdFrame struct {
	from     *bufio.Reader
	begun    bool
	checksum bool   // follows the last block
	part     []byte // of a header, to be returned
	left     int64  // bytes to the next header
	last     bool   // there is none
}

// Read implements io.Reader.
func (f *zstdFrame) Read(p []byte) (int, error) {
	if len(f.part) == 0 && f.left == 0 {
		if err := f.next(); err != nil {
			return 0, err
		}
	}
	if len(f.part) > 0 {
		n := copy(p, f.part)
		f.part = f.part[n:]
		return n, nil
	}
	n, err := f.from.Read(p[:min(int64(len(p)), f.left)])
	f.left -= int64(n)
	return n, noEOF(err)
}

// next reads the next header, and how many bytes follow it.
func (f *zstdFrame) next() error {
	switch {
	case f.last:
		return io.EOF
	case !f.begun:
		f.begun = true
		return f.header()
	}
	var block [3]byte
	if _, err := io.ReadFull(f.from, block[:]); err != nil {
		return noEOF(err)
	}
	f.part = block[:]
	bits := uint32(block[0]) | uint32(block[1])<<8 | uint32(block[2])<<16
	f.last, f.left = bits&1 != 0, int64(bits>>3)
	if bits>>1&3 == 1 { // one byte, repeated
		f.left = 1
	}
	if f.last && f.checksum {
		f.left += 4
	}
	return nil
}

// header reads the frame's header: magic, descriptor, and the fields that this announces.
func (f *zstdFrame) header() error {
	start, err := f.from.Peek(5)
	if err != nil {
		return noEOF(err)
	}
	if binary.LittleEndian.Uint32(start) != 0xfd2fb528 {
		return fmt.Errorf("%x is no frame of zstd", start)
	}
	descriptor := start[4]
	single := descriptor>>5&1 != 0
	size := 5 + []int{0, 1, 2, 4}[descriptor&3] + []int{0, 2, 4, 8}[descriptor>>6]
	if !single {
		size++ // the window's
	} else if descriptor>>6 == 0 {
		size++ // the content's
	}
	f.checksum = descriptor>>2&1 != 0
	f.part = make([]byte, size)
	_, err = io.ReadFull(f.from, f.part)
	return noEOF(err)
}
