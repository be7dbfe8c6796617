// Package inflate decompresses raw DEFLATE streams (RFC 1951), the format of file contents in
// archive repositories, and gzip files (RFC 1952). It is about twice as fast as compress/flate,
// because an import spends most of its time here. Fuzz tests compare it with compress/flate and
// compress/gzip.
package inflate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrCorrupt means that the data is not a DEFLATE stream.
var ErrCorrupt = errors.New("it is not a DEFLATE stream")

// Sizes of the buffers, in bytes. Each buffer is 8 bytes longer than a power of two, so that a
// word can be read at any masked index.
const (
	window  = 32 << 10            // maximum distance
	inMask  = 1<<16 - 1           // mask for indexes of the input buffer
	inCap   = inMask + 1 + 8      //
	ahead   = 2 * 8               // maximum that is read between two checks for available input
	inSize  = inCap - 2*ahead - 8 // maximum amount of data in the input buffer; zeros follow the last data
	outMask = 1<<17 - 1           // mask for indexes of the output buffer
	outCap  = outMask + 1 + 8     //
	spare   = 2 + 258 + 2*8       // maximum that is written between two checks for available room
	outEnd  = outCap - spare      // the output is full at this index
)

// Decoder decompresses streams, one after the other. It is large, so it should be reused.
type Decoder struct {
	values *values

	from  io.Reader
	in    *[inCap]byte
	at    int    // index in in of the next byte that is not in bits
	end   int    // index in in of the end of the data
	safe  int    // last index in in at which ahead bytes may be read
	ended bool   // from has no more data
	bits  uint64 // the next bits of the stream, lowest first
	count uint   // number of valid bits in bits; those above are right too, but are read again

	out     *[outCap]byte
	filled  int // index in out of the end of the output
	flushed int // index in out up to which output was returned

	last bool  // the current block is the last one
	kind block // of the current block
	left int   // bytes left in a stored block

	lengths   [numLiterals + numDistances]uint8
	literals  [literalSize]uint32
	distances [distanceSize]uint32
	codes     [lengthsSize]uint32
}

// block is a kind of block.
type block uint8

const (
	between block = iota // not in a block
	storedBlock
	codedBlock
)

// New returns a new Decoder.
func New() *Decoder {
	return &Decoder{values: newValues(), in: new([inCap]byte), out: new([outCap]byte)}
}

// Reset starts to decompress another stream.
func (d *Decoder) Reset(from io.Reader) {
	d.from, d.at, d.end, d.safe, d.ended, d.bits, d.count = from, 0, 0, -1, false, 0, 0
	d.restart()
}

// restart starts to decompress another stream that follows the last one in the input.
func (d *Decoder) restart() {
	d.filled, d.flushed = 0, 0
	d.last, d.kind, d.left = false, between, 0
}

// Next returns more decompressed data, which is valid until the next call. It returns io.EOF at
// the end of the stream, and io.ErrUnexpectedEOF if the stream is truncated. Errors of the
// reader are returned unchanged.
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
		if err := d.step(); err != nil {
			return nil, err
		}
	}
	fresh := d.out[d.flushed:d.filled]
	d.flushed = d.filled
	return fresh, nil
}

// slide makes room for output if the buffer is full, and keeps the window.
func (d *Decoder) slide() {
	if d.filled >= outEnd {
		copy(d.out[:], d.out[d.filled-window:d.filled])
		d.filled, d.flushed = window, window
	}
}

// step starts a block, or continues a block until it ends or the output is full.
func (d *Decoder) step() error {
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

// Decode decompresses a stream to a writer. The stream must decompress to exactly size bytes,
// and nothing may follow it. Errors of the reader and the writer are returned unchanged.
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

// finish returns an error if anything follows the stream.
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

// peek returns the next n bytes (at most ahead) after the stream without consuming them, or fewer
// at the end of the input.
func (d *Decoder) peek(n int) ([]byte, error) {
	d.align()
	if d.at+n > d.end && !d.ended {
		if err := d.read(); err != nil {
			return nil, err
		}
	}
	if d.at > d.end { // the stream was truncated
		return nil, nil
	}
	return d.in[d.at:min(d.at+n, d.end)], nil
}

// skip consumes and returns the next n bytes (at most ahead) after the stream.
func (d *Decoder) skip(n int) ([]byte, error) {
	data, err := d.peek(n)
	if err == nil && len(data) < n {
		return nil, io.ErrUnexpectedEOF
	}
	d.at += len(data)
	return data, err
}

// align advances to the next byte boundary.
func (d *Decoder) align() {
	d.at -= int(d.count / 8)
	d.bits, d.count = 0, 0
}

// refill fills bits with at least 56 bits. Zeros follow the end of the input.
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

// read reads more input, so that at least ahead bytes are available. At the end of the input it
// pads with zeros, and the next call fails.
func (d *Decoder) read() error {
	if d.ended {
		return io.ErrUnexpectedEOF
	}
	kept := min(d.at, 8) // bytes that may still be in bits; align returns them to the input
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

// take consumes n bits, which must be available.
func (d *Decoder) take(n uint) uint64 {
	v := d.bits & (1<<n - 1)
	d.bits >>= n
	d.count -= n
	return v
}
