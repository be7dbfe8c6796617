package layer

import (
	"sync/atomic"

	"machine-pivot/internal/osimage/imagefault"
	"machine-pivot/internal/ostree"
)

// maxNames bounds the memory of the names in derived layers, in bytes, whether they are read now or an
// earlier import has kept them. It is enough for about 180,000 files; large systems have half of that number.
const maxNames = 40 << 20

// maxBaseNames bounds the memory of the names of the base that are loaded, in bytes. All of them are if a layer
// changes the SELinux policy. A few directories that refer to each other many times have more than that.
const maxBaseNames = 2 * maxNames

// nameCounter counts the memory of the names in the layers of a merge, or of those of its base. It is used by
// several goroutines.
type nameCounter struct {
	bytes atomic.Int64
	base  bool // it counts the names of the base
}

// count counts n bytes. A nil counter counts nothing.
func (c *nameCounter) count(n int64) error {
	switch {
	case c == nil:
	case c.base && c.bytes.Add(n) > maxBaseNames:
		return imagefault.TooLarge("its base is labelled by another SELinux policy, and the names in it take more than %d bytes of memory", maxBaseNames)
	case !c.base && c.bytes.Add(n) > maxNames:
		return imagefault.TooLarge("the names in its derived layers take more than %d bytes of memory", maxNames)
	}
	return nil
}

// countSaved counts the names of a directory that is in the repository.
func (c *nameCounter) countSaved(d *ostree.Directory) error {
	var n int64
	for name := range d.Files {
		n += fileMemory + int64(len(name))
	}
	for name := range d.Dirs {
		n += dirMemory + int64(len(name))
	}
	return c.count(n)
}
