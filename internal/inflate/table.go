package inflate

import "math/bits"

// A decoding table is indexed with the next bits of the stream. For a code that is longer than
// the index, the entry refers to a second table behind the first one.
//
// An entry has 32 bits. The fields, at the given bits, are:
//
//	literal      1 at 31; the byte at 16; the code length at 0
//	length, distance
//	             the base value at 16; the code length at 8; at 0 the sum of code length
//	             and number of extra bits
//	second table special and linked; its index at 16; the number of bits that index it
//	             at 8; the number of bits of the first index at 0
//	end of block special; the code length at 0
//	no code      special and invalid
const (
	literal = 1 << 31
	special = 1 << 15
	linked  = 1 << 14
	invalid = 1 << 13
)

// Limits of RFC 1951.
const (
	maxCodeLen   = 15
	numLiterals  = 288
	numDistances = 32
	endOfBlock   = 256
)

// The number of index bits of the first tables, and the maximum number of entries in both levels
// that result from it (computed by zlib's examples/enough.c).
const (
	literalBits   = 11
	literalSize   = 2342
	distanceBits  = 8
	distanceSize  = 402
	lengthsBits   = 7 // for the code of code lengths, which needs no second table
	lengthsSize   = 1 << lengthsBits
	numLengths    = 19
	maxLenLengths = 7
)

// build makes a decoding table for a canonical Huffman code with the given code lengths. values
// has the entry of each symbol without its code length. build reports whether the lengths are
// valid: the code must be complete, or have a single code of one bit, or be empty.
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

// fill fills the table with symbols, which are sorted by code.
func fill(table []uint32, indexBits uint, count *[maxCodeLen + 1]int, sorted []uint16, values *[numLiterals]uint32) {
	end := 1 << indexBits // end of the used part of the table
	code, at := uint(0), 0
	second, prefix := 0, ^uint(0) // index and prefix of the current second table
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

// lengthAt returns the mask of the code length at bit 8, which only lengths and distances have.
func lengthAt(entry uint32) uint32 {
	if entry&(literal|special) != 0 {
		return 0
	}
	return 15 << 8
}

// secondBits returns the number of index bits for a second table. Its first code is n bits longer than the first
// table's index. The table takes codes until it is full.
func secondBits(n uint, left int, longer []int) uint {
	for used := left; used < 1<<n && len(longer) > 0; longer = longer[1:] {
		n++
		used = used<<1 + longer[0]
	}
	return n
}

// values has the entries, without code lengths, of all literals and lengths, of all distances,
// and of the code length alphabet.
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
