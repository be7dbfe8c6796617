package ostree

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/guard"
	"machine-pivot/internal/ostree/gvariant"
)

// The GVariant types of metadata objects (ostree-core.h).
var (
	commitType  = gvariant.MustType("(a{sv}aya(say)sstayay)")
	dirTreeType = gvariant.MustType("(a(say)a(sayay))")
	dirMetaType = gvariant.MustType("(uuua(ayay))")
)

// parseDirMeta parses a DirMeta object.
func parseDirMeta(data []byte) (o owned, xattrs []xattr, err error) {
	v, err := dirMetaType.Open(data)
	if err != nil {
		return o, nil, err
	}
	xattrs, err = parseXattrs(v.Field(3))
	return ownedIn(v, 0), xattrs, err
}

// checkDirMeta validates a DirMeta object.
func checkDirMeta(data []byte) error {
	o, xattrs, err := parseDirMeta(data)
	if err != nil {
		return err
	}
	if o.mode&unix.S_IFMT != unix.S_IFDIR {
		return fmt.Errorf("its mode %#o is not a directory's", o.mode)
	}
	if err := o.check(); err != nil {
		return err
	}
	return checkXattrs(xattrs, o.mode)
}

// owned is the owner and mode of a file or directory; the mode includes the file type bits.
type owned struct{ uid, gid, mode uint32 }

// ownedIn reads owner and mode from three fields of a tuple.
func ownedIn(v gvariant.Value, first int) owned {
	return owned{bigEndian(v.Field(first).Uint32()), bigEndian(v.Field(first + 1).Uint32()), bigEndian(v.Field(first + 2).Uint32())}
}

// check returns an error for values that the kernel would not store. chown(2) takes the ID -1 as "no change", which
// leaves root as the owner, and chmod(2) drops unknown mode bits. "ostree fsck" accepts such a commit, which could not
// be deployed unchanged.
func (o owned) check() error {
	const unchanged = ^uint32(0)
	if o.uid == unchanged || o.gid == unchanged {
		return fmt.Errorf("its owner %d:%d is none: the ID %d stands for no change", o.uid, o.gid, unchanged)
	}
	if o.mode&^uint32(unix.S_IFMT|0o7777) != 0 {
		return fmt.Errorf("its mode %#o has bits that no mode has", o.mode)
	}
	return nil
}

// checkMetadata validates the structure of a metadata object.
func checkMetadata(t ObjectType, data []byte) (err error) {
	switch t {
	case Commit:
		_, err = parseCommit(data)
	case DirTree:
		_, err = openTree(data)
	case DirMeta:
		err = checkDirMeta(data)
	case CommitMeta:
		_, err = gvariant.Open("a{sv}", data)
	default:
		err = fmt.Errorf("it is no metadata")
	}
	return err
}

// bigEndian converts a number from or to ostree's encoding: big-endian inside a little-endian
// GVariant.
func bigEndian(n uint32) uint32 { return bits.ReverseBytes32(n) }

// headerLength parses the length that precedes a file header: 4 bytes, big-endian, followed by
// 4 zero bytes (_ostree_write_variant_with_size).
func headerLength(prefix [8]byte) (int, error) {
	n := binary.BigEndian.Uint32(prefix[:4])
	if binary.BigEndian.Uint32(prefix[4:]) != 0 {
		return 0, fmt.Errorf("bad header length")
	}
	if n > maxHeader {
		return 0, guard.TooMuch("its header has %d bytes, more than %d", n, maxHeader)
	}
	return int(n), nil
}

// maxHeader is the maximum size of a file object's header, in bytes: 1 MiB of extended
// attributes, which is more than file systems allow, and the longest link target.
const maxHeader = 1<<20 + 8<<10
