package vm

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"unicode/utf16"
)

// A disk's partition table is a GPT (UEFI specification, chapter 5): a protective
// MBR, a header and 128 entries, and both again at the end in reverse order.
const (
	sectorSize   = 512
	gptSignature = 0x5452415020494645 // "EFI PART"
	gptEntries   = 128
	gptEntrySize = 128
	gptHeader    = 92                                           // bytes
	gptTable     = gptEntries * gptEntrySize / sectorSize       // sectors
	alignment    = 1 << 20                                      // bytes; more than a table needs
	linuxData    = "\xaf\x3d\xc6\x0f\x83\x84\x72\x47\x8e\x79" + // 0FC63DAF-8483-4772-8E79-3D69D8477DE4
		"\x3d\x69\xd8\x47\x7d\xe4"
)

// partition is a part of a disk, in bytes.
type partition struct {
	name         string
	offset, size int64
}

// gpt is the layout of one header and its table, on disk. The numbers are sectors.
type gpt struct {
	Signature                uint64
	Revision, HeaderSize     uint32
	HeaderSum, _             uint32
	Here, Other              uint64
	FirstUsable, LastUsable  uint64
	Disk                     [16]byte
	Table                    uint64
	Entries, EntrySize, Sums uint32
}

type gptEntry struct {
	Type, Partition [16]byte
	First, Last     uint64
	Flags           uint64
	Name            [36]uint16
}

// partitioned makes an empty disk with partitions one after the other, whose
// names and sizes are given. It returns them with their places.
func partitioned(path string, wanted []partition) (parts []partition, err error) {
	end := int64(alignment)
	for _, p := range wanted {
		p.offset = end
		end += p.size
		parts = append(parts, p)
	}
	size := end + alignment
	disk, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("cannot make disk: %w", err)
	}
	defer func() { err = errors.Join(err, disk.Close()) }()
	if err := errors.Join(disk.Truncate(size), writeGPT(disk, parts, uint64(size/sectorSize)-1)); err != nil {
		return nil, fmt.Errorf("cannot make disk %s: %w", path, err)
	}
	return parts, nil
}

// writeGPT writes both tables to a disk whose last sector is given.
func writeGPT(disk *os.File, parts []partition, last uint64) error {
	table := make([]gptEntry, gptEntries)
	for i, p := range parts {
		e := gptEntry{First: uint64(p.offset / sectorSize), Last: uint64((p.offset+p.size)/sectorSize) - 1}
		copy(e.Type[:], linuxData)
		e.Partition = unique(fmt.Sprintf("partition %d %s", i, p.name))
		copy(e.Name[:], utf16.Encode([]rune(p.name)))
		table[i] = e
	}
	entries := bytesOf(table)
	h := gpt{
		Signature: gptSignature, Revision: 1 << 16, HeaderSize: gptHeader, Here: 1, Other: last,
		FirstUsable: 2 + gptTable, LastUsable: last - 1 - gptTable, Disk: unique("disk"), Table: 2,
		Entries: gptEntries, EntrySize: gptEntrySize, Sums: crc32.ChecksumIEEE(entries),
	}
	backup := h
	backup.Here, backup.Other, backup.Table = last, 1, last-gptTable
	var err error
	write := func(data []byte, sector uint64) {
		_, e := disk.WriteAt(data, int64(sector)*sectorSize)
		err = errors.Join(err, e)
	}
	write(protectiveMBR(last), 0)
	for _, h := range []gpt{h, backup} {
		h.HeaderSum = crc32.ChecksumIEEE(bytesOf(h))
		write(bytesOf(h), h.Here)
		write(entries, h.Table)
	}
	return err
}

// protectiveMBR says to what knows no GPT that the disk is in use.
func protectiveMBR(last uint64) []byte {
	const record, wholeDisk = 446, 0xee
	mbr := make([]byte, sectorSize)
	mbr[record+4] = wholeDisk
	binary.LittleEndian.PutUint32(mbr[record+8:], 1)
	binary.LittleEndian.PutUint32(mbr[record+12:], uint32(last))
	mbr[510], mbr[511] = 0x55, 0xaa
	return mbr
}

// unique is an ID made of a text: the same disk has the same IDs each time.
func unique(text string) [16]byte {
	sum := sha256.Sum256([]byte(text))
	return [16]byte(sum[:16])
}

func bytesOf(v any) []byte {
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
		panic(err) // of a fixed size
	}
	return b.Bytes()
}

// partitionsOf reads a disk's partition table.
func partitionsOf(path string) (parts []partition, err error) {
	disk, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read disk: %w", err)
	}
	defer func() { err = errors.Join(err, disk.Close()) }()
	head := make([]byte, 2*sectorSize+gptEntries*gptEntrySize)
	if _, err := disk.ReadAt(head, 0); err != nil {
		return nil, fmt.Errorf("cannot read disk %s: %w", path, err)
	}
	if binary.LittleEndian.Uint64(head[sectorSize:]) != gptSignature {
		return nil, fmt.Errorf("cannot read disk %s: it has no partition table", path)
	}
	table := make([]gptEntry, gptEntries)
	if _, err := binary.Decode(head[2*sectorSize:], binary.LittleEndian, table); err != nil {
		return nil, fmt.Errorf("cannot read disk %s: %w", path, err)
	}
	for _, e := range table {
		if e.Last > 0 {
			name, _, _ := bytes.Cut([]byte(string(utf16.Decode(e.Name[:]))), []byte{0})
			parts = append(parts, partition{string(name), int64(e.First) * sectorSize, int64(e.Last-e.First+1) * sectorSize})
		}
	}
	return parts, nil
}
