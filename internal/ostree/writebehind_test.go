package ostree

import (
	"errors"
	"io"
	"testing"

	"machine-pivot/internal/guard"
)

// panicking is a writer that panics.
type panicking struct{}

func (panicking) Write([]byte) (int, error) { panic("write") }

// TestWriteBehindPanics: a panic on either side is returned as the error, and the other side
// ends.
func TestWriteBehindPanics(t *testing.T) {
	for name, c := range map[string]struct {
		to      io.Writer
		produce func(io.Writer) error
	}{
		"writer": {panicking{}, func(w io.Writer) error {
			_, err := w.Write(make([]byte, 10*writeBehindSize))
			return err
		}},
		"producer": {io.Discard, func(io.Writer) error { panic("produce") }},
	} {
		if _, panicked := errors.AsType[*guard.Panic](withWriteBehind(c.to, c.produce)); !panicked {
			t.Errorf("%s: no panic came back", name)
		}
	}
}
