package cli

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"machine-pivot/internal/fault"
)

// stdout is the standard output of all commands of a program. The rule: output that is lost is a
// failure of the command, whatever it prints and however it handles the error of a write.
type stdout struct {
	file  *os.File
	wrote bool
	err   error // of the first write that failed
}

// Write implements io.Writer.
func (s *stdout) Write(p []byte) (int, error) {
	s.wrote = true
	n, err := s.file.Write(p)
	if s.err == nil {
		s.err = err
	}
	return n, err
}

// after returns the error of a command that has ended with err, which may be nil. If its output was
// lost, that is an error of kind CannotWrite, unless the command has failed for another reason. A
// reader that has gone, as head does, wants no more.
func (s *stdout) after(err error) error {
	if s.wrote && s.err == nil {
		s.err = s.file.Close() // a network file system may report only now that it has no room
	}
	if s.err == nil || errors.Is(s.err, unix.EPIPE) {
		return err
	}
	_, status := errors.AsType[ExitStatus](err)
	_, reported := errors.AsType[Reported](err)
	if err != nil && !status && !reported && !errors.Is(err, s.err) {
		return err
	}
	return fault.New(fault.CannotWrite, "cannot write the output: %w", s.err).
		WithHint("the command has done its work, only its output is lost: make room, or write it elsewhere (> FILE), and run it again")
}
