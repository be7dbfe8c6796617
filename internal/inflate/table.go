package inflate

import "math/bits"

// A decoding table is looked up with the next bits of the stream. A code that is
// longer than the table's index leads to a second table behind it.
//
// An entry of 32 bits is one of
//
//	literal      1 at bit 31, the byte at 16; the code's length at 0
//	length, distance
//	             what is added to at 16, the code's length at 8; at 0 that and
//	             the extra bits together
//	second table special and linked; its place at 16, its index' bits at 8; at 0
//	             how many bits lead to it
//	end of block special; the code's length at 0
//	no code      special and invalid
const (
	literal = 1 << 31
	special = 1 << 15
	linked  = 1 << 14
	invalid = 1 << 13
)

// Bounds of RFC 1951.
const (
	maxCodeLen   = 15
	numLiterals  = 288
	numDistances = 32
	endOfBlock   = 256
)

// The index' bits of the first tables, and the most entries that both levels can
// have with them (zlib's examples/enough.c counts these).
const (
	literalBits   = 11
	literalSize   = 2342
	distanceBits  = 8
	distanceSize  = 402
	lengthsBits   = 7 // of the code of code lengths, which has no longer ones
	lengthsSize   = 1 << lengthsBits
	numLengths    = 19
	maxLenLengths = 7
)

// build makes a decoding table for a canonical Huffman code with these lengths.
// values has each symbol's entry without the code's length. It reports whether
// the lengths make a code: a complete one, one of a single bit, or none at all.
func build(table []uint32, indexBits uint, lengths []uint8, values *[numLiterals]uint32) bool {
	var count, next [maxCodeLen + 1]int
	for _, n := range lengths {
		count[n]++
	}
	free, used := 1<<maxCodeLen, 0
	for n := 1; n <= maxCodeLen; n++ {
		next[n] = used
		used += count[n]
		free -= count[n] << (maxCodeLen - n)
	}
	if free < 0 || free > 0 && used > 0 && !(used == 1 && count[1] == 1) {
		return false
	}
	if free > 0 {
		for i := range table[:1<<indexBits] {
			table[i] = special | invalid | 1
		}
	}
	var sorted [numLiterals]uint16
	for symbol, n := range lengths {
		if n > 0 {
			sorted[next[n]] = uint16(symbol)
			next[n]++
		}
	}
	fill(table, indexBits, &count, sorted[:used], values)
	return true
}

// fill enters symbols, which are in the order of their codes.
func fill(table []uint32, indexBits uint, count *[maxCodeLen + 1]int, sorted []uint16, values *[numLiterals]uint32) {
	end := 1 << indexBits // of what is used of the table
	code, at := uint(0), 0
	second, prefix := 0, ^uint(0) // the second table that is being filled
	for n := uint(1); n <= maxCodeLen; n++ {
		code <<= 1
		for left := count[n]; left > 0; left-- {
			reversed := uint(bits.Reverse16(uint16(code)) >> (16 - n))
			entry := values[sorted[at]]
			at, code = at+1, code+1
			if n <= indexBits {
				entry += uint32(n)<<8&lengthAt(entry) + uint32(n)
				for i := reversed; i < 1<<indexBits; i += 1 << n {
					table[i] = entry
				}
				continue
			}
			if low := reversed & (1<<indexBits - 1); low != prefix {
				prefix, second = low, end
				size := secondBits(n-indexBits, left, count[n+1:])
				table[low] = uint32(end)<<16 | special | linked | uint32(size)<<8 | uint32(indexBits)
				end += 1 << size
			}
			rest := n - indexBits
			entry += uint32(rest)<<8&lengthAt(entry) + uint32(rest)
			size := uint(table[prefix]>>8) & 15
			for i := reversed >> indexBits; i < 1<<size; i += 1 << rest {
				table[second+int(i)] = entry
			}
		}
	}
}

// lengthAt masks the place of the code's length in lengths and distances; others have none.
func lengthAt(entry uint32) uint32 {
	if entry&(literal|special) != 0 {
		return 0
	}
	return 15 << 8
}

// secondBits is how many bits index a second table whose first code has n bits
// beyond the first table's: it takes up codes until it is full.
func secondBits(n uint, left int, longer []int) uint {
	for used := left; used < 1<<n && len(longer) > 0; longer = longer[1:] {
		n++
		used = used<<1 + longer[0]
	}
	return n
}

// values are the entries of all literals and lengths, of all distances, and of
// the code lengths.
type values struct {
	literals, distances, lengths [numLiterals]uint32
}

func newValues() *values {
	v := &values{}
	for i := range 256 {
		v.literals[i] = literal | uint32(i)<<16
	}
	v.literals[endOfBlock] = special
	base := uint32(3)
	for i := range uint32(28) {
		extra := max(i/4, 1) - 1
		v.literals[257+i] = base<<16 | extra
		base += 1 << extra
	}
	v.literals[285] = 258 << 16
	v.literals[286], v.literals[287] = special|invalid, special|invalid
	base = 1
	for i := range uint32(30) {
		extra := max(i/2, 1) - 1
		v.distances[i] = base<<16 | extra
		base += 1 << extra
	}
	v.distances[30], v.distances[31] = special|invalid, special|invalid
	for i := range uint32(numLengths) {
		v.lengths[i] = i << 16
	}
	return v
}
