// Package inflate decompresses raw DEFLATE streams (RFC 1951), as the contents of
// archive repositories are. It does what compress/flate does, for one whole stream
// whose size is known, and about twice as fast: an import spends most of its time
// here. A fuzz test holds it against compress/flate.
package inflate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrCorrupt is the error of data that is not a DEFLATE stream.
var ErrCorrupt = errors.New("it is not a DEFLATE stream")

// Sizes of the buffers, in bytes. Each has 8 more than a power of two, so that a
// word can be had at any place that a mask leaves.
const (
	window  = 32 << 10            // how far back a distance goes
	inMask  = 1<<16 - 1           // of places in the input
	inCap   = inMask + 1 + 8      //
	ahead   = 2 * 8               // read at most between two looks at what input is left
	inSize  = inCap - 2*ahead - 8 // of input; zeros follow its end
	outMask = 1<<17 - 1           // of places in the output
	outCap  = outMask + 1 + 8     //
	spare   = 2 + 258 + 2*8       // written at most between two looks at what room is left
	outEnd  = outCap - spare      // where output is handed on, at the latest
)

// Decoder decompresses streams, one after the other. Its buffers and tables are
// worth being used again.
type Decoder struct {
	values *values

	from  io.Reader
	in    *[inCap]byte
	at    int    // of in: what is not in bits yet
	end   int    // of in: where data ends
	safe  int    // of in: up to here ahead bytes may be read
	ended bool   // there is no more than in has
	bits  uint64 // the next bits of the stream, lowest first
	count uint   // of bits; above are more that are right, but do not count

	out     *[outCap]byte
	filled  int // of out
	flushed int // of out: what was handed on

	last bool  // the block is the last one
	kind block // that is being decompressed
	left int   // of a stored block

	lengths   [numLiterals + numDistances]uint8
	literals  [literalSize]uint32
	distances [distanceSize]uint32
	codes     [lengthsSize]uint32
}

// block is a kind of block, or where there is none.
type block uint8

const (
	between block = iota
	storedBlock
	codedBlock
)

// New makes a Decoder.
func New() *Decoder {
	return &Decoder{values: newValues(), in: new([inCap]byte), out: new([outCap]byte)}
}

// Reset begins with another stream.
func (d *Decoder) Reset(from io.Reader) {
	d.from, d.at, d.end, d.safe, d.ended, d.bits, d.count = from, 0, 0, -1, false, 0, 0
	d.restart()
}

// restart begins with another stream where the last one ended.
func (d *Decoder) restart() {
	d.filled, d.flushed = 0, 0
	d.last, d.kind, d.left = false, between, 0
}

// Next decompresses some more, which is valid until the next call. It ends with
// io.EOF, and with io.ErrUnexpectedEOF if the stream is cut off. Errors of the
// reader come back as they are.
func (d *Decoder) Next() ([]byte, error) {
	d.slide()
	for d.filled < outEnd {
		if d.kind == between && d.last {
			if d.at-int(d.count/8) > d.end {
				return nil, io.ErrUnexpectedEOF
			}
			if d.filled == d.flushed {
				return nil, io.EOF
			}
			break
		}
		if err := d.more(); err != nil {
			return nil, err
		}
	}
	fresh := d.out[d.flushed:d.filled]
	d.flushed = d.filled
	return fresh, nil
}

// slide makes room for output and keeps the window.
func (d *Decoder) slide() {
	if d.filled >= outEnd {
		copy(d.out[:], d.out[d.filled-window:d.filled])
		d.filled, d.flushed = window, window
	}
}

// more begins a block or goes on with one, until it ends or the room for output does.
func (d *Decoder) more() error {
	switch d.kind {
	case storedBlock:
		return d.stored()
	case codedBlock:
		return d.coded()
	}
	if err := d.refill(); err != nil {
		return err
	}
	d.last = d.take(1) == 1
	switch d.take(2) {
	case 0:
		return d.beginStored()
	case 1:
		d.fixed()
	case 2:
		if err := d.dynamic(); err != nil {
			return err
		}
	default:
		return ErrCorrupt
	}
	d.kind = codedBlock
	return nil
}

// Decode decompresses what a reader has, which must be one stream of exactly size
// bytes and nothing behind it. Errors of the writer come back as they are.
func (d *Decoder) Decode(to io.Writer, from io.Reader, size uint64) error {
	d.Reset(from)
	defer func() { d.from = nil }()
	for produced := uint64(0); ; {
		data, err := d.Next()
		if err == io.EOF && produced != size {
			return fmt.Errorf("it has %d bytes of content, its header says %d", produced, size)
		}
		if err == io.EOF {
			return d.finish()
		}
		if err != nil {
			return err
		}
		if produced += uint64(len(data)); produced > size {
			return fmt.Errorf("it has more content than the %d bytes its header says", size)
		}
		if _, err := to.Write(data); err != nil {
			return err
		}
	}
}

// finish looks at what follows the stream.
func (d *Decoder) finish() error {
	switch rest, err := d.peek(1); {
	case err != nil:
		return err
	case len(rest) > 0:
		return errTrailing
	}
	return nil
}

var errTrailing = errors.New("something follows its content")

// peek shows up to n bytes (at most ahead) that follow the stream, fewer where the input ends.
func (d *Decoder) peek(n int) ([]byte, error) {
	d.align()
	if d.at+n > d.end && !d.ended {
		if err := d.read(); err != nil {
			return nil, err
		}
	}
	if d.at > d.end { // it was cut off
		return nil, nil
	}
	return d.in[d.at:min(d.at+n, d.end)], nil
}

// skip takes n bytes (at most ahead) that follow the stream.
func (d *Decoder) skip(n int) ([]byte, error) {
	data, err := d.peek(n)
	if err == nil && len(data) < n {
		return nil, io.ErrUnexpectedEOF
	}
	d.at += len(data)
	return data, err
}

// align goes to the next whole byte.
func (d *Decoder) align() {
	d.at -= int(d.count / 8)
	d.bits, d.count = 0, 0
}

// refill makes at least 56 bits be there. Behind the end of the stream are zeros.
func (d *Decoder) refill() error {
	if d.at > d.safe {
		if err := d.read(); err != nil {
			return err
		}
	}
	d.bits |= binary.LittleEndian.Uint64(d.in[d.at:]) << d.count
	d.at += int(63-d.count) >> 3
	d.count |= 56
	return nil
}

// read gets more input, so that ahead bytes may be read, or finds out that there is none.
func (d *Decoder) read() error {
	if d.ended {
		return io.ErrUnexpectedEOF
	}
	kept := min(d.at, 8) // they may still be in bits, and be given back
	d.end = copy(d.in[:], d.in[d.at-kept:d.end])
	d.at = kept
	for d.end <= d.at+2*ahead && !d.ended {
		n, err := d.from.Read(d.in[d.end:inSize])
		d.end += n
		if err != nil && err != io.EOF {
			return err
		}
		d.ended = err == io.EOF
	}
	d.safe = d.end - ahead
	if d.ended {
		clear(d.in[d.end : d.end+2*ahead+8])
		d.safe = d.end + ahead
	}
	return nil
}

// take takes bits that are there.
func (d *Decoder) take(n uint) uint64 {
	v := d.bits & (1<<n - 1)
	d.bits >>= n
	d.count -= n
	return v
}
