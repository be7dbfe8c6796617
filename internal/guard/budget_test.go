package guard_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/guard"
)

// TestBudget: the limit is on the sum of all parts, and stays exceeded.
func TestBudget(t *testing.T) {
	b := guard.NewBudget(10, "bytes of contents")
	for _, part := range []string{"12345", "", "67890"} {
		if got, err := io.ReadAll(b.Reader(iotest.OneByteReader(strings.NewReader(part)))); err != nil || string(got) != part {
			t.Errorf("%q: read %q, %v", part, got, err)
		}
	}
	if _, err := io.ReadAll(b.Reader(strings.NewReader(""))); err != nil {
		t.Error("nothing more:", err)
	}
	endless := &counted{}
	for range 2 {
		_, err := io.ReadAll(b.Reader(endless))
		if !errors.Is(err, guard.ErrTooMuch) || fault.KindOf(err) != fault.BadInput || err.Error() != "it has more than 10 bytes of contents in total" {
			t.Errorf("beyond the limit: %v", err)
		}
	}
	if endless.reads != 2 {
		t.Errorf("%d reads after the limit was exceeded, want one by each call", endless.reads)
	}
	b = guard.NewBudget(10, "bytes")
	if err := errors.Join(b.Take(10), failed(b.Take(1))); err != nil {
		t.Error(err)
	}
	if b.Return(11); b.Take(10) != nil {
		t.Error("what was returned cannot be taken again")
	}
}

func failed(err error) error {
	if err == nil {
		return errors.New("no error beyond the limit")
	}
	return nil
}

// counted is an endless stream that counts reads.
type counted struct{ reads int }

func (c *counted) Read(p []byte) (int, error) {
	c.reads++
	return len(p), nil
}
