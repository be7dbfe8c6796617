package ostree

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"strings"

	"golang.org/x/sys/unix"

	"machine-pivot/ostree/gvariant"
)

// The GVariant types of metadata objects (ostree-core.h).
const (
	commitType  = "(a{sv}aya(say)sstayay)"
	dirTreeType = "(a(say)a(sayay))"
	dirMetaType = "(uuua(ayay))"
)

// checkDirMeta checks the structure of a DirMeta.
func checkDirMeta(data []byte) error {
	value, err := gvariant.Decode(dirMetaType, data)
	if err != nil {
		return err
	}
	t := value.(gvariant.Tuple)
	if mode := bits.ReverseBytes32(t[2].(uint32)); mode&unix.S_IFMT != unix.S_IFDIR {
		return fmt.Errorf("its mode %#o is not a directory's", mode)
	}
	_, err = parseXattrs(t[3])
	return err
}

// checkMetadata checks the structure of a metadata object.
func checkMetadata(t ObjectType, data []byte) (err error) {
	switch t {
	case Commit:
		_, err = parseCommit(data)
	case DirTree:
		_, err = parseDirTree(data)
	case DirMeta:
		err = checkDirMeta(data)
	case CommitMeta:
		_, err = gvariant.Decode("a{sv}", data)
	default:
		err = fmt.Errorf("it is no metadata")
	}
	return err
}

// xattr is one extended attribute.
type xattr struct {
	name  string
	value []byte
}

// parseXattrs reads an a(ayay), which must be canonical: sorted by name, each once.
func parseXattrs(value any) ([]xattr, error) {
	var xattrs []xattr
	last := ""
	for _, entry := range value.([]any) {
		fields := entry.(gvariant.Tuple)
		raw := string(fields[0].([]byte))
		name, ended := strings.CutSuffix(raw, "\x00")
		if !ended || name == "" || strings.Contains(name, "\x00") || name <= last {
			return nil, fmt.Errorf("extended attribute %q: bad name or order", raw)
		}
		last = name
		xattrs = append(xattrs, xattr{name, fields[1].([]byte)})
	}
	return xattrs, nil
}

// bigEndian is a number as ostree puts it into a variant: with its bytes swapped.
func bigEndian(n uint32) uint32 { return bits.ReverseBytes32(n) }

// headerLength reads the length that stands before a file header: 4 bytes big
// endian and 4 zeroes (_ostree_write_variant_with_size).
func headerLength(prefix [8]byte) (int, error) {
	n := binary.BigEndian.Uint32(prefix[:4])
	if binary.BigEndian.Uint32(prefix[4:]) != 0 || n > maxHeader {
		return 0, fmt.Errorf("bad header length")
	}
	return int(n), nil
}

// maxHeader bounds the header of a file object, in bytes: its xattrs are at most
// 64 KiB each and the kernel lists names up to 64 KiB.
const maxHeader = 16 << 20
