package vm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
)

// raidSuperblock is the description of a RAID's member, as Linux has it in version 1 (mdp_superblock_1). Numbers are little-endian,
// and sizes are in sectors.
type raidSuperblock struct {
	Magic, Major, Features, _ uint32
	Set                       [16]byte
	Name                      [32]byte
	Created                   uint64
	Level, Layout             uint32
	Size                      uint64
	Chunk, Disks, Bitmap      uint32
	_                         [28]byte // of a change of the RAID's form
	DataOffset, DataSize      uint64
	Self                      uint64
	_                         uint64 // of a rebuild
	Number, _                 uint32
	Device                    [16]byte
	_                         [8]byte // of bad blocks
	Updated, Events, Synced   uint64
	Checksum, Roles           uint32
	_                         [32]byte
	Role                      [2]uint16
}

// makeRAID makes a partition the only member of a mirror (RAID 1), with the superblock at its end (version 1.0). The mirror begins where
// the partition does, and is a little shorter.
func makeRAID(disk string, p partition) (partition, error) {
	const sector = 512
	end := raidEnd(p)
	size := uint64(end / sector)
	b := raidSuperblock{
		Magic: raidMagic, Major: 1, Set: [16]byte([]byte("pivot-guest-root")), Level: 1, Size: size, Disks: 1, DataSize: size, Self: size,
		Device: [16]byte([]byte("pivot-guest-disk")), Events: 1, Synced: ^uint64(0), Roles: 1, Role: [2]uint16{0, 0xffff},
	}
	copy(b.Name[:], "root")
	b.Checksum = b.sum()
	f, err := os.OpenFile(disk, os.O_WRONLY, 0)
	if err != nil {
		return p, err
	}
	_, err = f.WriteAt(b.bytes(), p.offset+end)
	if err := f.Close(); err != nil {
		return p, fmt.Errorf("cannot make a RAID: %w", err)
	}
	p.size = end
	return p, err
}

const raidMagic = 0xa92b4efc

// raidEnd returns where in a partition the superblock of version 1.0 is, behind the data.
func raidEnd(p partition) int64 { return (p.size - 8<<10) &^ (4<<10 - 1) }

func (b raidSuperblock) bytes() []byte {
	var out bytes.Buffer
	_ = binary.Write(&out, binary.LittleEndian, b) // into memory
	return out.Bytes()
}

// sum returns the checksum: the sum of all numbers, as of 32 bits, to that of the last role.
func (b raidSuperblock) sum() uint32 {
	const end = 256 + 2 // of one role, in a number of 16 bits
	var sum uint64
	content := b.bytes()
	for at := 0; at+4 <= end; at += 4 {
		sum += uint64(binary.LittleEndian.Uint32(content[at:]))
	}
	sum += uint64(binary.LittleEndian.Uint16(content[256:]))
	return uint32(sum) + uint32(sum>>32)
}
