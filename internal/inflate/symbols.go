package inflate

import (
	"encoding/binary"
)

// coded decompresses the symbols of a block until the block ends or the output is full.
func (d *Decoder) coded() error {
	for d.filled < outEnd {
		if d.at > d.safe {
			if err := d.read(); err != nil {
				return err
			}
		}
		switch done, err := d.symbols(); {
		case err != nil:
			return d.corrupt()
		case done:
			d.kind = between
			return nil
		}
	}
	return nil
}

// symbols decompresses until the block ends, the input runs out or the output is full. For speed it keeps the state in
// local variables, and checks the bounds once per iteration. That handles a few literals, or literals and a copy; ahead
// and spare are the most that it reads and writes. It is one long function, with three literals unrolled, because an
// import spends most of its time here.
func (d *Decoder) symbols() (done bool, err error) {
	in, out := d.in, d.out
	at, filled, bits, count := uint(d.at), uint(d.filled), d.bits, d.count
	safe := d.safe
loop:
	for int(at) <= safe && filled < outEnd {
		bits |= word(in, at) << (count & 63)
		at += (63 - count) >> 3
		count |= 56

		entry := d.literals[bits&(1<<literalBits-1)]
		if int32(entry) < 0 {
			bits >>= entry & 63
			count -= uint(entry & 63)
			out[filled&outMask] = byte(entry >> 16)
			filled++
			entry = d.literals[bits&(1<<literalBits-1)]
			if int32(entry) < 0 {
				bits >>= entry & 63
				count -= uint(entry & 63)
				out[filled&outMask] = byte(entry >> 16)
				filled++
				entry = d.literals[bits&(1<<literalBits-1)]
				if int32(entry) < 0 {
					bits >>= entry & 63
					count -= uint(entry & 63)
					out[filled&outMask] = byte(entry >> 16)
					filled++
					continue
				}
			}
		}
		if entry&special != 0 {
			if entry&linked != 0 {
				bits >>= literalBits
				count -= literalBits
				entry = d.literals[uint(entry>>16)+uint(bits)&(1<<(entry>>8&15)-1)]
			}
			if int32(entry) < 0 {
				bits >>= entry & 63
				count -= uint(entry & 63)
				out[filled&outMask] = byte(entry >> 16)
				filled++
				continue
			}
			if entry&special != 0 {
				if entry&invalid != 0 {
					err = ErrCorrupt
					break loop
				}
				bits >>= entry & 63
				count -= uint(entry & 63)
				done = true
				break loop
			}
		}
		length := uint(entry>>16) + uint(bits&(1<<(entry&63)-1)>>(entry>>8&15))
		bits >>= entry & 63
		count -= uint(entry & 63)

		bits |= word(in, at) << (count & 63)
		at += (63 - count) >> 3
		count |= 56
		entry = d.distances[bits&(1<<distanceBits-1)]
		if entry&special != 0 {
			if entry&linked != 0 {
				bits >>= distanceBits
				count -= distanceBits
				entry = d.distances[uint(entry>>16)+uint(bits)&(1<<(entry>>8&15)-1)]
			}
			if entry&special != 0 {
				err = ErrCorrupt
				break loop
			}
		}
		distance := uint(entry>>16) + uint(bits&(1<<(entry&63)-1)>>(entry>>8&15))
		bits >>= entry & 63
		count -= uint(entry & 63)
		if distance > filled {
			err = ErrCorrupt
			break loop
		}
		if distance < 8 {
			repeat(out, filled, distance, length)
			filled += length
			continue
		}
		// Most copies are short: copying two words is cheaper than checking how many are needed.
		from, end := filled-distance, filled+length
		copyWord(out, filled, from)
		copyWord(out, filled+8, from+8)
		for filled += 16; filled < end; filled += 8 {
			copyWord(out, filled, filled-distance)
		}
		filled = end
	}
	d.at, d.filled, d.bits, d.count = int(at), int(filled), bits, count
	return done, err
}

// The masks below do not change the indexes. They let the compiler omit bounds checks.

// word returns the 8 bytes of input at an index.
func word(in *[inCap]byte, at uint) uint64 {
	at &= inMask
	return binary.LittleEndian.Uint64(in[at : at+8])
}

// copyWord copies 8 bytes.
func copyWord(out *[outCap]byte, to, from uint) {
	to, from = to&outMask, from&outMask
	binary.LittleEndian.PutUint64(out[to:to+8], binary.LittleEndian.Uint64(out[from:from+8]))
}

// repeat appends length bytes by repeating the last distance bytes.
func repeat(out *[outCap]byte, at, distance, length uint) {
	to := out[at : at+length]
	n := copy(to, out[at-distance:at])
	for n < len(to) {
		n += copy(to[n:], to[:n]) // doubles the repeated part
	}
}
