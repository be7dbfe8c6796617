package guard

import (
	"errors"
	"io"
	"sync/atomic"

	"machine-pivot/internal/fault"
)

// ErrTooMuch is in the chain of every error of a Budget, and of TooMuch.
var ErrTooMuch = errors.New("too much")

// Budget is one limit on the sum of all parts of an input, counted while they are read. Limits on each part alone do not
// bound an input, because it decides how many parts there are. A Budget is safe for concurrent use.
type Budget struct {
	limit int64
	unit  string // in words, such as "bytes of contents"
	used  atomic.Int64
}

// NewBudget returns a Budget of limit units. unit names in the error what is limited, such as "bytes of
// contents".
func NewBudget(limit int64, unit string) *Budget { return &Budget{limit: limit, unit: unit} }

// Take takes n units. Once the sum is above the limit, Take and every later call return an error
// that names the limit; its kind is fault.BadInput.
func (b *Budget) Take(n int64) error {
	if b.used.Add(n) > b.limit {
		return TooMuch("it has more than %d %s in total", b.limit, b.unit)
	}
	return nil
}

// TooMuch returns the error for an input beyond a limit that is not counted by a Budget. Its kind is
// fault.BadInput. The format is that of fmt.Errorf.
func TooMuch(format string, args ...any) error {
	return fault.New(fault.BadInput, format+"%w", append(args, silent{ErrTooMuch})...)
}

// Return gives n units back, which were taken for something that has been freed.
func (b *Budget) Return(n int64) { b.used.Add(-n) }

// silent is an error that is found in a chain, without a text.
type silent struct{ error }

func (silent) Error() string   { return "" }
func (s silent) Unwrap() error { return s.error }

// Reader returns a reader that takes a unit for each byte that it reads.
func (b *Budget) Reader(from io.Reader) io.Reader { return reader{b, from} }

type reader struct {
	budget *Budget
	from   io.Reader
}

// Read implements io.Reader.
func (r reader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if n > 0 {
		if over := r.budget.Take(int64(n)); over != nil {
			return 0, over
		}
	}
	return n, err
}
