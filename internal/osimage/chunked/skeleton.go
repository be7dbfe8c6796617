package chunked

import (
	"encoding/json"
	"errors"
	"io"
)

// The types of a skeleton's entries (tar-split, tar/storage).
const (
	fileEntry    = 1 // stands for the content of an entry of the archive, which may be empty
	segmentEntry = 2 // has bytes of the archive
)

// errSkeleton is the error for a skeleton that does not fit the table.
var errSkeleton = errors.New("the skeleton does not fit the table of contents")

// skeleton reads the skeleton of an archive: the bytes in gaps between the contents of files, and
// their sizes. A gap has any number of segments.
type skeleton struct {
	in    *json.Decoder
	close func()
	file  int64 // size of the file after the gap that was read last
	ended bool  // there is no file after that gap
}

// skeletonEntry is a line of a skeleton.
type skeletonEntry struct {
	Type    int    `json:"type"`
	Size    int64  `json:"size"`
	Payload []byte `json:"payload"`
}

// openSkeleton opens the contents' skeleton. It returns nil if there is none.
func (c *Contents) openSkeleton() (*skeleton, error) {
	if c.skeleton == nil {
		return nil, nil
	}
	in, done, err := unpack(c.skeleton, c.unpacked)
	if err != nil {
		return nil, err
	}
	return &skeleton{in: in, close: done}, nil
}

// segment returns the next bytes of the present gap, or nil at its end.
func (s *skeleton) segment() ([]byte, error) {
	for !s.ended && s.file == 0 {
		var e skeletonEntry
		err := s.in.Decode(&e)
		switch {
		case err == io.EOF:
			s.ended = true
		case err != nil:
			return nil, err
		case e.Type == segmentEntry && len(e.Payload) > 0:
			return e.Payload, nil
		case e.Type == fileEntry && e.Size > 0:
			s.file = e.Size
		case e.Size < 0, e.Type != fileEntry && e.Type != segmentEntry:
			return nil, errSkeleton
		}
	}
	return nil, nil
}

// skipGap reads the rest of a gap and returns its size in bytes.
func (s *skeleton) skipGap() (size int64, err error) {
	for {
		bytes, err := s.segment()
		if err != nil || bytes == nil {
			return size, err
		}
		size += int64(len(bytes))
	}
}

// take ends a gap. The file after it must have the given size.
func (s *skeleton) take(size int64) error {
	if s.file != size {
		return errSkeleton
	}
	s.file = 0
	return nil
}
