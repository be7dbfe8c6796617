package rehearse

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
)

// lz4 decompresses the legacy format of LZ4, the only one that the kernel reads: blocks of at most 8 MiB, each with its
// compressed size before it.
type lz4 struct {
	from  *bufio.Reader
	block []byte // compressed
	out   []byte // expanded
	left  []byte // of out, to be returned
}

const (
	lz4Block  = 8 << 20
	lz4Packed = lz4Block + lz4Block/255 + 16 // the most that a block without any repetition takes
)

var errLZ4 = errors.New("a block of LZ4 in it is damaged")

func newLZ4(from *bufio.Reader) (*lz4, error) {
	_, err := from.Discard(4)
	return &lz4{from: from}, err
}

// Read implements io.Reader.
func (z *lz4) Read(p []byte) (int, error) {
	for len(z.left) == 0 {
		if err := z.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, z.left)
	z.left = z.left[n:]
	return n, nil
}

// next expands the next block. The stream ends where no size of a block follows.
func (z *lz4) next() error {
	head, err := z.from.Peek(4)
	if len(head) < 4 {
		return err
	}
	size := binary.LittleEndian.Uint32(head)
	if size == 0 || size > lz4Packed { // padding, or what follows
		return io.EOF
	}
	if _, err := z.from.Discard(4); err != nil {
		return err
	}
	z.block = append(z.block[:0], make([]byte, size)...)
	if _, err := io.ReadFull(z.from, z.block); err != nil {
		return noEOF(err)
	}
	z.out, err = expandBlock(z.out[:0], z.block)
	z.left = z.out
	return err
}

// expandBlock appends what a block expands to: literals, each run followed by a repetition of what was there before.
func expandBlock(out, block []byte) ([]byte, error) {
	for len(block) > 0 {
		token := block[0]
		literals, rest, ok := lz4Length(int(token>>4), block[1:])
		if !ok || literals > len(rest) || len(out)+literals > lz4Block {
			return out, errLZ4
		}
		out, block = append(out, rest[:literals]...), rest[literals:]
		if len(block) == 0 {
			return out, nil
		}
		if len(block) < 2 {
			return out, errLZ4
		}
		offset := int(binary.LittleEndian.Uint16(block))
		length, rest, ok := lz4Length(int(token&15), block[2:])
		length += 4
		if !ok || offset == 0 || offset > len(out) || len(out)+length > lz4Block {
			return out, errLZ4
		}
		for block = rest; length > 0; { // it may repeat what it has just written
			n := min(length, offset)
			out = append(out, out[len(out)-offset:len(out)-offset+n]...)
			length -= n
		}
	}
	return out, nil
}

// lz4Length returns a length of which the token has the first four bits.
func lz4Length(length int, from []byte) (int, []byte, bool) {
	if length < 15 {
		return length, from, true
	}
	for i, b := range from {
		if length += int(b); b < 255 {
			return length, from[i+1:], length <= lz4Block
		}
	}
	return 0, nil, false
}
