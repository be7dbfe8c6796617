package inflate

import (
	"encoding/binary"
)

// coded decompresses the symbols of a block up to its end, as far as there is room.
func (d *Decoder) coded() error {
	for d.filled < outEnd {
		if d.at > d.safe {
			if err := d.read(); err != nil {
				return err
			}
		}
		switch done, err := d.symbols(); {
		case err != nil:
			return d.nonsense()
		case done:
			d.kind = between
			return nil
		}
	}
	return nil
}

// symbols decompresses until the block ends, or input or room for output runs
// out. All that changes is held in local variables, and bounds are looked at once
// for some literals and a copy, of which spare and ahead say how much they take.
// It is one long function, with three literals unrolled, because an import spends
// most of its time here.
func (d *Decoder) symbols() (done bool, err error) {
	in, out := d.in, d.out
	at, filled, bits, count := d.at, d.filled, d.bits, d.count
	literals, distances := &d.literals, &d.distances
	safe := d.safe
loop:
	for at <= safe && filled < outEnd {
		bits |= binary.LittleEndian.Uint64(in[at:]) << (count & 63)
		at += int(63-count) >> 3
		count |= 56

		entry := literals[bits&(1<<literalBits-1)]
		if int32(entry) < 0 {
			bits >>= entry & 63
			count -= uint(entry & 63)
			out[filled] = byte(entry >> 16)
			filled++
			entry = literals[bits&(1<<literalBits-1)]
			if int32(entry) < 0 {
				bits >>= entry & 63
				count -= uint(entry & 63)
				out[filled] = byte(entry >> 16)
				filled++
				entry = literals[bits&(1<<literalBits-1)]
				if int32(entry) < 0 {
					bits >>= entry & 63
					count -= uint(entry & 63)
					out[filled] = byte(entry >> 16)
					filled++
					continue
				}
			}
		}
		if entry&special != 0 {
			if entry&linked != 0 {
				bits >>= literalBits
				count -= literalBits
				entry = literals[uint(entry>>16)+uint(bits)&(1<<(entry>>8&15)-1)]
			}
			if int32(entry) < 0 {
				bits >>= entry & 63
				count -= uint(entry & 63)
				out[filled] = byte(entry >> 16)
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
		length := int(entry>>16) + int(bits&(1<<(entry&63)-1)>>(entry>>8&15))
		bits >>= entry & 63
		count -= uint(entry & 63)

		bits |= binary.LittleEndian.Uint64(in[at:]) << (count & 63)
		at += int(63-count) >> 3
		count |= 56
		entry = distances[bits&(1<<distanceBits-1)]
		if entry&special != 0 {
			if entry&linked != 0 {
				bits >>= distanceBits
				count -= distanceBits
				entry = distances[uint(entry>>16)+uint(bits)&(1<<(entry>>8&15)-1)]
			}
			if entry&special != 0 {
				err = ErrCorrupt
				break loop
			}
		}
		distance := int(entry>>16) + int(bits&(1<<(entry&63)-1)>>(entry>>8&15))
		bits >>= entry & 63
		count -= uint(entry & 63)
		if distance > filled {
			err = ErrCorrupt
			break loop
		}
		repeat(out, filled, distance, length)
		filled += length
	}
	d.at, d.filled, d.bits, d.count = at, filled, bits, count
	return done, err
}

// repeat copies length bytes from distance before at to there. Up to 7 bytes
// behind them are changed, too.
func repeat(out []byte, at, distance, length int) {
	from := at - distance
	switch {
	case distance >= 8 && length <= 32:
		for end := at + length; at < end; at, from = at+8, from+8 {
			binary.LittleEndian.PutUint64(out[at:], binary.LittleEndian.Uint64(out[from:]))
		}
	case distance >= length:
		copy(out[at:at+length], out[from:from+length])
	default:
		// Doubles what is there until it is enough.
		to := out[at : at+length]
		n := copy(to, out[from:at])
		for n < length {
			n += copy(to[n:], to[:n])
		}
	}
}
