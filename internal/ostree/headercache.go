package ostree

import (
	"encoding/binary"
	"sync"
)

// headerCache keeps parsed headers of files. Most files of an OS have the same owner, mode and
// label as many others, and parsing, checking and encoding a header takes as long as hashing 8 KiB.
// Its zero value is empty.
type headerCache struct {
	mu    sync.RWMutex
	known map[string]*fileHeader
}

// Limits of a headerCache. What exceeds them is parsed each time.
const (
	maxCachedHeaders = 1024
	maxCachedKey     = 256 // bytes
)

// get returns the header with the given serialized form, which includes neither the size of the
// content nor a link's target, and sets its size. parse parses it if it is not cached.
func (c *headerCache) get(key []byte, size uint64, parse func() (*fileHeader, error)) (*fileHeader, error) {
	c.mu.RLock()
	known, full := c.known[string(key)], len(c.known) == maxCachedHeaders
	c.mu.RUnlock()
	if known != nil {
		h := *known
		h.size = size
		return &h, nil
	}
	h, err := parse()
	if err != nil || full || len(key) > maxCachedKey || h.isLink() {
		return h, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[string]*fileHeader{}
	}
	c.known[string(key)] = h
	return h, nil
}

// archiveHeader does what parseArchiveHeader does. The size comes first in the header.
func (c *headerCache) archiveHeader(data []byte) (*fileHeader, error) {
	const sizeBytes = 8
	if len(data) < sizeBytes {
		return parseArchiveHeader(data)
	}
	size := binary.BigEndian.Uint64(data)
	return c.get(data[sizeBytes:], size, func() (*fileHeader, error) { return parseArchiveHeader(data) })
}

// fileHeader does what FileInfo.header does.
func (c *headerCache) fileHeader(i FileInfo) (*fileHeader, error) {
	if i.Target != "" {
		return i.header()
	}
	var memory [maxCachedKey]byte
	key := binary.LittleEndian.AppendUint32(memory[:0], i.UID)
	key = binary.LittleEndian.AppendUint32(key, i.GID)
	key = binary.LittleEndian.AppendUint32(key, i.Mode)
	key = append(key, i.Xattrs...)
	return c.get(key, i.Size, i.header)
}
