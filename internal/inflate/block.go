package inflate

import (
	"encoding/binary"
	"io"
)

// beginStored reads the header of a stored block.
func (d *Decoder) beginStored() error {
	head, err := d.peek(4)
	if err != nil {
		return err
	}
	if len(head) < 4 {
		return io.ErrUnexpectedEOF
	}
	n := binary.LittleEndian.Uint16(head)
	if n != ^binary.LittleEndian.Uint16(head[2:]) {
		return ErrCorrupt
	}
	d.at += 4
	d.kind, d.left = storedBlock, int(n)
	return nil
}

// stored copies data of a stored block.
func (d *Decoder) stored() error {
	if d.left == 0 {
		d.kind = between
		return nil
	}
	if d.at == d.end {
		if err := d.read(); err != nil {
			return err
		}
		if d.at == d.end {
			return io.ErrUnexpectedEOF
		}
	}
	n := copy(d.out[d.filled:outEnd], d.in[d.at:min(d.end, d.at+d.left)])
	d.at, d.filled, d.left = d.at+n, d.filled+n, d.left-n
	return nil
}

// fixed builds the tables of the fixed Huffman codes.
func (d *Decoder) fixed() {
	l := d.lengths[:numLiterals]
	for i := range l {
		switch {
		case i < 144:
			l[i] = 8
		case i < 256:
			l[i] = 9
		case i < 280:
			l[i] = 7
		default:
			l[i] = 8
		}
	}
	build(d.literals[:], literalBits, l, &d.values.literals)
	l = d.lengths[:numDistances]
	for i := range l {
		l[i] = 5
	}
	build(d.distances[:], distanceBits, l, &d.values.distances)
}

// dynamic reads the Huffman codes of a block and builds their tables.
func (d *Decoder) dynamic() error {
	if err := d.refill(); err != nil {
		return err
	}
	literals, distances, lengths := int(d.take(5))+257, int(d.take(5))+1, int(d.take(4))+4
	if literals > numLiterals-2 || distances > numDistances-2 {
		return d.corrupt()
	}
	order := [numLengths]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}
	var code [numLengths]uint8
	for _, symbol := range order[:lengths] {
		if d.count < 3 {
			if err := d.refill(); err != nil {
				return err
			}
		}
		code[symbol] = uint8(d.take(3))
	}
	if !build(d.codes[:], lengthsBits, code[:], &d.values.lengths) {
		return d.corrupt()
	}
	all := d.lengths[:literals+distances]
	if err := d.readLengths(all); err != nil {
		return err
	}
	if !build(d.literals[:], literalBits, all[:literals], &d.values.literals) ||
		!build(d.distances[:], distanceBits, all[literals:], &d.values.distances) {
		return d.corrupt()
	}
	return nil
}

// readLengths reads the code lengths of literals and distances, which are run-length encoded.
func (d *Decoder) readLengths(to []uint8) error {
	for i := 0; i < len(to); {
		if d.count < maxLenLengths+7 {
			if err := d.refill(); err != nil {
				return err
			}
		}
		entry := d.codes[d.bits&(lengthsSize-1)]
		if entry&special != 0 {
			return d.corrupt()
		}
		d.take(uint(entry & 15))
		symbol := uint8(entry >> 16)
		if symbol < 16 {
			to[i] = symbol
			i++
			continue
		}
		value, n := uint8(0), 0
		switch symbol {
		case 16:
			if i == 0 {
				return d.corrupt()
			}
			value, n = to[i-1], 3+int(d.take(2))
		case 17:
			n = 3 + int(d.take(3))
		default:
			n = 11 + int(d.take(7))
		}
		if i+n > len(to) {
			return d.corrupt()
		}
		for ; n > 0; n-- {
			to[i] = value
			i++
		}
	}
	return nil
}

// corrupt returns the error for an invalid code. Past the end of a truncated stream the code
// consists of padding, so the error is io.ErrUnexpectedEOF.
func (d *Decoder) corrupt() error {
	if d.ended && d.at-int(d.count/8) >= d.end {
		return io.ErrUnexpectedEOF
	}
	return ErrCorrupt
}
