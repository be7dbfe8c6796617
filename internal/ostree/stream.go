package ostree

import (
	"errors"
	"fmt"
	"io"

	"machine-pivot/internal/guard"
)

// trackedStream records the error of a reader or writer, so that an I/O error can be
// distinguished from invalid content.
type trackedStream struct {
	from   io.Reader
	to     io.Writer
	failed error
}

// Read implements io.Reader.
func (s *trackedStream) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	if err != nil && err != io.EOF {
		s.failed = err
	}
	return n, err
}

// Write implements io.Writer.
func (s *trackedStream) Write(p []byte) (int, error) {
	n, err := s.to.Write(p)
	s.failed = err
	return n, err
}

// readError returns the error for an object that could not be read: the error of the stream if
// it failed, a panic of this program, or otherwise a CorruptError.
func (s *trackedStream) readError(n ObjectName, err error) error {
	if s.failed != nil {
		return fmt.Errorf("cannot read object %s: %w", n, s.failed)
	}
	if _, panicked := errors.AsType[*guard.Panic](err); panicked {
		return fmt.Errorf("cannot read object %s: %w", n, err)
	}
	return corrupt(n, "%w", err)
}
