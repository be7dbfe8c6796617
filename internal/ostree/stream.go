package ostree

import (
	"errors"
	"fmt"
	"hash"
	"io"

	"machine-pivot/internal/guard"
)

// noting remembers the error of a stream, so that it can be distinguished from wrong
// content.
type noting struct {
	from   io.Reader
	to     io.Writer
	failed error
}

// Read implements io.Reader.
func (s *noting) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	if err != nil && err != io.EOF {
		s.failed = err
	}
	return n, err
}

// Write implements io.Writer.
func (s *noting) Write(p []byte) (int, error) {
	n, err := s.to.Write(p)
	s.failed = err
	return n, err
}

// blame is the error to return for an object that could not be read: that of the stream, if
// it failed, or a panic of this program, or else a CorruptError.
func (s *noting) blame(n ObjectName, err error) error {
	if s.failed != nil {
		return fmt.Errorf("cannot read object %s: %w", n, s.failed)
	}
	if _, panicked := errors.AsType[*guard.Panic](err); panicked {
		return fmt.Errorf("cannot read object %s: %w", n, err)
	}
	return corrupt(n, "%v", err)
}

// hashing is a writer that also feeds a checksum.
type hashing struct {
	to  io.Writer
	sum hash.Hash
}

// Write implements io.Writer.
func (h *hashing) Write(p []byte) (int, error) {
	h.sum.Write(p)
	return h.to.Write(p)
}
