package fault_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"machine-pivot/internal/fault"
)

func TestKindAndHint(t *testing.T) {
	inner := fault.New(fault.Unavailable, "no answer").WithHint("wait")
	for _, c := range []struct {
		err    error
		status int
		again  bool
		hint   string
	}{
		{errors.New("x"), 1, false, ""},
		{inner, 69, true, "wait"},
		{fmt.Errorf("cannot pull: %w", inner), 69, true, "wait"},
		{fault.New(fault.Refused, "cannot pull: %w", inner), 78, false, "wait"}, // the outermost kind counts
		{fault.New(fault.Usage, "x"), 64, false, ""},
		{fault.New(fault.BadInput, "x"), 65, false, ""},
		{fault.New(fault.CannotWrite, "x"), 73, false, ""},
		{fault.New(fault.Replace, "x"), 79, false, ""},
		{fault.New(fault.Unreconcilable, "x"), 80, false, ""},
		{fmt.Errorf("x: %w", context.DeadlineExceeded), 69, true, ""},
		{fault.New(fault.Refused, "x: %w", fault.Stopped{Signal: "interrupt", ByHand: true}).WithHint("y"), 130, true, "y"}, // whatever it ended
		{fault.Stopped{Signal: "hangup"}, 69, true, ""},
		{fault.New(fault.Refused, "x: %w", fault.Stopped{Signal: "terminated"}), 78, false, ""},
	} {
		kind := fault.KindOf(c.err)
		if kind.ExitStatus() != c.status || kind.Transient() != c.again || fault.HintOf(c.err) != c.hint {
			t.Errorf("%v: exit status %d, transient %v, hint %q", c.err, kind.ExitStatus(), kind.Transient(), fault.HintOf(c.err))
		}
		want := c.err.Error()
		if c.hint != "" {
			want += "; " + c.hint
		}
		if got := fault.WithRemedy(c.err); got != want {
			t.Errorf("%v with its remedy: %q", c.err, got)
		}
	}
}

// TestJoin: errors that do not depend on each other become one that names all of them.
func TestJoin(t *testing.T) {
	one, two := fault.New(fault.Usage, "one"), fault.New(fault.BadInput, "two: %w", fs.ErrPermission).WithHint("do it")
	if err := fault.Join(nil, nil); err != nil {
		t.Error(err)
	}
	if err := fault.Join(nil, two, nil); err != error(two) {
		t.Error(err)
	}
	err := fault.Join(one, nil, two)
	if fault.KindOf(err) != fault.Usage || fault.HintOf(err) != "do it" || err.Error() != "one\ntwo: permission denied" || !errors.Is(err, fs.ErrPermission) {
		t.Errorf("%v, kind %v, hint %q", err, fault.KindOf(err), fault.HintOf(err))
	}
	if err := fault.Join(one, fault.Stopped{Signal: "interrupt", ByHand: true}); fault.KindOf(err) != fault.Interrupted {
		t.Errorf("%v: kind %v", err, fault.KindOf(err))
	}
}

// TestNames: each kind has a name of its own.
func TestNames(t *testing.T) {
	names := map[string]fault.Kind{}
	for k := fault.Internal; k <= fault.Interrupted; k++ {
		if other, twice := names[k.String()]; twice {
			t.Errorf("%d and %d are %q", k, other, k)
		}
		names[k.String()] = k
	}
}
