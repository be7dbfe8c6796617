package osimage

import (
	"crypto/sha256"
	"sync"

	"machine-pivot/internal/osimage/layer"
	"machine-pivot/internal/ostree"
)

// contentIndex finds objects of the repository by the digest of their content, such as files of a
// renamed directory. An object's name does not show this digest, so those objects are read that
// have the size of a file that is looked for, each once.
type contentIndex struct {
	repo   *ostree.Repo
	target *ostree.Import

	mu     sync.Mutex
	unread map[int64][]ostree.Checksum // by size; nil until it is needed
	read   map[[sha256.Size]byte]ostree.Checksum
	budget int64 // bytes that may be read before something is found
}

// Limits of the index, in bytes except for maxSame.
const (
	minIndexed = 8 << 10  // smaller files cost little to fetch, and many have the same size
	maxSame    = 8        // number of objects of one size that are read
	maxInVain  = 64 << 20 // read in vain before the index gives up
	worthOf    = 4        // bytes that may be read in vain for each byte that was found
)

// find returns an object with the content of a file.
func (x *contentIndex) find(file layer.ChunkedFile) (n ostree.ObjectName, found bool) {
	if file.Size < minIndexed {
		return n, false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.read == nil {
		x.unread, x.read = x.repo.FilesBySize(minIndexed, maxSame), map[[sha256.Size]byte]ostree.Checksum{}
		x.budget = maxInVain
	}
	c, found := x.read[file.Digest]
	for _, candidate := range x.unread[file.Size] {
		if found || x.budget < file.Size {
			break
		}
		x.unread[file.Size] = x.unread[file.Size][1:]
		x.budget -= file.Size
		digest, err := digestOf(x.target, ostree.ObjectName{Checksum: candidate, Type: ostree.File})
		if err == nil {
			x.read[digest] = candidate
		}
		c, found = x.read[file.Digest]
	}
	if found {
		x.budget += worthOf * file.Size
	}
	return ostree.ObjectName{Checksum: c, Type: ostree.File}, found
}
