package guard_test

import (
	"errors"
	"strings"
	"testing"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/guard"
)

// index panics like code that trusts a wrong index.
func index(s []int, i int) int { return s[i] }

func TestPanicIsAnError(t *testing.T) {
	wrong := errors.New("wrong")
	for name, run := range map[string]func(f func() error) error{
		"call":  guard.Call,
		"start": func(f func() error) error { return <-guard.Start(f) },
		"group": func(f func() error) error {
			group, ctx := guard.NewGroup(t.Context())
			group.Limit(2)
			group.Start(f)
			group.Start(func() error { <-ctx.Done(); return ctx.Err() })
			return group.Wait()
		},
	} {
		err := run(func() error { index(nil, 3); return nil })
		if err == nil || fault.KindOf(err) != fault.Internal || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		for _, part := range []string{"panic: runtime error: index out of range [3]", "guard_test.index guard_test.go:", "defect"} {
			if !strings.Contains(err.Error()+fault.HintOf(err), part) {
				t.Errorf("%s: %v does not say %q", name, err, part)
			}
		}
		if err := run(func() error { panic(wrong) }); !errors.Is(err, wrong) || fault.KindOf(err) != fault.Internal {
			t.Errorf("%s: %v", name, err)
		}
		if err := run(func() error { return wrong }); err != wrong { // unchanged
			t.Errorf("%s: %v", name, err)
		}
	}
}
