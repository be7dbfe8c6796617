package osimage

import (
	"bytes"
	"crypto/sha256"
	"io"
	"sync"

	"machine-pivot/internal/osimage/layer"
	"machine-pivot/internal/ostree"
)

// xattrSets has the sets of extended attributes that files of the repository have, as files of an
// ostree-native container contain them. There is such a file for each object, but few sets: nearly
// all attributes are SELinux labels.
type xattrSets struct {
	target *ostree.Import

	mu    sync.Mutex
	known map[[sha256.Size]byte][]byte
	size  int // total size in bytes
}

// maxXattrSets limits the memory of the sets, in bytes. Those of an OS take some 100 KiB.
const maxXattrSets = 2 << 20

// xattrSet is the type in names of sets. It is libostree's for such files
// (OSTREE_OBJECT_TYPE_FILE_XATTRS_LINK).
const xattrSet ostree.ObjectType = 9

// find returns the name of the set that a file has as its content: one that is known, or that of an object.
func (x *xattrSets) find(file layer.ChunkedFile, of ostree.Checksum) (ostree.ObjectName, bool) {
	name := ostree.ObjectName{Checksum: file.Digest, Type: xattrSet}
	x.mu.Lock()
	defer x.mu.Unlock()
	if set, found := x.known[file.Digest]; found {
		return name, int64(len(set)) == file.Size
	}
	set, err := x.target.Xattrs(of)
	if err != nil || int64(len(set)) != file.Size || sha256.Sum256(set) != file.Digest || x.size+len(set) > maxXattrSets {
		return name, false
	}
	if x.known == nil {
		x.known = map[[sha256.Size]byte][]byte{}
	}
	x.known[file.Digest] = set
	x.size += len(set)
	return name, true
}

// open returns the content of a set.
func (x *xattrSets) open(n ostree.ObjectName) io.ReadCloser {
	x.mu.Lock()
	defer x.mu.Unlock()
	return io.NopCloser(bytes.NewReader(x.known[n.Checksum]))
}
