package layer

import (
	"encoding/json"
	"io"
)

// The types of a skeleton's entries (tar-split, tar/storage).
const (
	skeletonFile    = 1 // stands for the content of an entry of the archive, which may be empty
	skeletonSegment = 2 // has bytes of the archive
)

// skeleton reads the skeleton of an archive: the bytes in gaps between the contents of files, and
// their sizes. A gap has any number of segments.
type skeleton struct {
	in    *json.Decoder
	done  func()
	file  int64 // size of the file after the gap that was read last
	ended bool  // there is no file after that gap
}

// skeletonEntry is a line of a skeleton.
type skeletonEntry struct {
	Type    int    `json:"type"`
	Size    int64  `json:"size"`
	Payload []byte `json:"payload"`
}

// openSkeleton opens a compressed skeleton of at most size bytes.
func openSkeleton(data []byte, size int64) (chunkedHeaders, error) {
	in, done, err := unpackPart(data, size)
	if err != nil {
		return nil, err
	}
	return &skeleton{in: in, done: done}, nil
}

func (s *skeleton) atEnd() bool { return s.ended }
func (s *skeleton) exact() bool { return true }
func (s *skeleton) close()      { s.done() }

func (s *skeleton) segment() ([]byte, error) {
	for !s.ended && s.file == 0 {
		var e skeletonEntry
		err := s.in.Decode(&e)
		switch {
		case err == io.EOF:
			s.ended = true
		case err != nil:
			return nil, err
		case e.Type == skeletonSegment && len(e.Payload) > 0:
			return e.Payload, nil
		case e.Type == skeletonFile && e.Size > 0:
			s.file = e.Size
		case e.Size < 0, e.Type != skeletonFile && e.Type != skeletonSegment:
			return nil, errHeaders
		}
	}
	return nil, nil
}

func (s *skeleton) take(size int64) error {
	if s.file != size {
		return errHeaders
	}
	s.file = 0
	return nil
}
