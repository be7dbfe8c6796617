package pivot

import (
	"context"
	"fmt"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/retry"
)

// Retry says how long a transient failure is tried again. Waits double from
// First to Cap; after Bound in all the last failure stands.
type Retry struct {
	First, Cap, Bound time.Duration
	Sleep             func(context.Context, time.Duration) error // waits, or fails when the context ends
	Now               func() time.Time
}

// Pause is the wait between two tries.
type Pause struct {
	Try   int           // that failed, from 1
	Wait  time.Duration // until the next one
	Until time.Time     // no try begins later
}

// String says it to people.
func (p Pause) String() string {
	return fmt.Sprintf("try %d failed, next in %s, and so on until %s", p.Try, p.Wait, p.Until.Format("15:04:05"))
}

// DefaultRetry suits a machine whose registry comes up at about the same time.
func DefaultRetry() Retry {
	return Retry{First: time.Second, Cap: 30 * time.Second, Bound: 20 * time.Minute, Sleep: retry.Sleep, Now: time.Now}
}

// Do calls work until it succeeds, fails permanently, or the bound is reached.
// Each wait is told to waiting with the failure that caused it.
func (r Retry) Do(ctx context.Context, waiting func(error, Pause), work func(context.Context) error) error {
	begun, wait := r.Now(), r.First
	for attempt := 1; ; attempt++ {
		err := work(ctx)
		if err == nil || ctx.Err() != nil || !fault.KindOf(err).Transient() {
			return err
		}
		if took := r.Now().Sub(begun); took+wait > r.Bound {
			return &fault.Error{Kind: fault.Unavailable, Hint: fault.HintOf(err),
				Err: fmt.Errorf("gave up after %d tries in %s: %w", attempt, took.Round(time.Second), err)}
		}
		waiting(err, Pause{attempt, wait, begun.Add(r.Bound)})
		if err := r.Sleep(ctx, wait); err != nil {
			return err
		}
		wait = min(2*wait, r.Cap)
	}
}
