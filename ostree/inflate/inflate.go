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

// Sizes of the buffers, in bytes.
const (
	window = 32 << 10             // how far back a distance goes
	chunk  = 128 << 10            // what is handed on at once
	spare  = 258 + 2*8            // written at most between two looks at what room is left
	inSize = 64 << 10             // of input
	ahead  = 2 * 8                // read at most between two looks at what input is left
	outEnd = window + chunk       // where output is handed on, at the latest
	outCap = outEnd + spare       // with what may be written before
	inCap  = inSize + 2*ahead + 8 // with the zeros that follow the end
)

// Decoder decompresses streams, one after the other. Its buffers and tables are
// worth being used again.
type Decoder struct {
	values *values

	from  io.Reader
	in    []byte
	at    int    // of in: what is not in bits yet
	end   int    // of in: where data ends
	safe  int    // of in: up to here ahead bytes may be read
	ended bool   // there is no more than in has
	bits  uint64 // the next bits of the stream, lowest first
	count uint   // of bits; above are more that are right, but do not count

	to       io.Writer
	out      []byte
	filled   int    // of out
	flushed  int    // of out: what was handed on
	produced uint64 // bytes handed on
	size     uint64 // of the whole

	lengths   [numLiterals + numDistances]uint8
	literals  [literalSize]uint32
	distances [distanceSize]uint32
	codes     [lengthsSize]uint32
}

// New makes a Decoder.
func New() *Decoder {
	return &Decoder{values: newValues(), in: make([]byte, inCap), out: make([]byte, outCap)}
}

// Decode decompresses what a reader has, which must be one stream of exactly size
// bytes and nothing behind it. Errors of the reader and of the writer come back
// as they are; io.ErrUnexpectedEOF if the stream is cut off.
func (d *Decoder) Decode(to io.Writer, from io.Reader, size uint64) error {
	d.from, d.at, d.end, d.safe, d.ended, d.bits, d.count = from, 0, 0, -1, false, 0, 0
	d.to, d.filled, d.flushed, d.produced, d.size = to, 0, 0, 0, size
	defer func() { d.from, d.to = nil, nil }()
	for last := false; !last; {
		if err := d.refill(); err != nil {
			return err
		}
		last = d.take(1) == 1
		if err := d.block(d.take(2)); err != nil {
			return err
		}
	}
	return d.finish()
}

// block decompresses one block.
func (d *Decoder) block(kind uint64) error {
	switch kind {
	case 0:
		return d.stored()
	case 1:
		d.fixed()
	case 2:
		if err := d.dynamic(); err != nil {
			return err
		}
	default:
		return ErrCorrupt
	}
	return d.compressed()
}

// finish hands on the rest and looks at what follows.
func (d *Decoder) finish() error {
	end := d.at - int(d.count/8)
	if end > d.end {
		return io.ErrUnexpectedEOF
	}
	if err := d.flush(); err != nil {
		return err
	}
	if d.produced != d.size {
		return fmt.Errorf("it has %d bytes of content, its header says %d", d.produced, d.size)
	}
	if end < d.end {
		return errTrailing
	}
	if d.ended {
		return nil
	}
	d.at = d.end
	if err := d.read(); err != nil {
		return err
	}
	if d.at < d.end {
		return errTrailing
	}
	return nil
}

var errTrailing = errors.New("something follows its content")

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
	d.end = copy(d.in, d.in[d.at-kept:d.end])
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

// flush hands on what was decompressed and keeps the window.
func (d *Decoder) flush() error {
	fresh := d.out[d.flushed:d.filled]
	if d.produced += uint64(len(fresh)); d.produced > d.size {
		return fmt.Errorf("it has more content than the %d bytes its header says", d.size)
	}
	if _, err := d.to.Write(fresh); err != nil {
		return err
	}
	if d.filled > window {
		copy(d.out, d.out[d.filled-window:d.filled])
		d.filled = window
	}
	d.flushed = d.filled
	return nil
}
