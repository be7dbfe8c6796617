// Package retry repeats work that fails for a reason that may pass, with growing
// waits in between.
package retry

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"machine-pivot/internal/fault"
)

// Policy says when work is tried again. The zero value tries once.
type Policy struct {
	First, Cap time.Duration // the waits double from First to Cap
	Bound      time.Duration // of all tries and waits together; 0 is no bound if Tries is set
	Tries      int           // at most; 0 is any number within Bound

	Sleep func(context.Context, time.Duration) error // waits, or fails when the context ends; nil is Sleep
	Now   func() time.Time                           // nil is time.Now
}

// Wait is the wait after the nth failure in a row, counted from 1. It is shortened by a
// random part of up to a quarter, so that machines that failed together do not come
// back together.
func (p Policy) Wait(n int) time.Duration {
	wait := p.First
	for ; n > 1 && 0 < wait && wait < p.Cap; n-- {
		wait *= 2
	}
	wait = min(wait, p.Cap)
	return wait - rand.N(wait/4+1)
}

// Pause is the wait between two tries.
type Pause struct {
	Try   int           // that failed, from 1
	Wait  time.Duration // until the next one
	Until time.Time     // no try begins later; zero if that is not bounded
}

// String is the pause for people.
func (p Pause) String() string {
	text := fmt.Sprintf("try %d failed, next in %s", p.Try, p.Wait.Round(time.Millisecond))
	if !p.Until.IsZero() {
		text += ", and so on until " + p.Until.Format("15:04:05")
	}
	return text
}

// Pause waits, or fails when the context ends.
func (p Policy) Pause(ctx context.Context, d time.Duration) error {
	if p.Sleep != nil {
		return p.Sleep(ctx, d)
	}
	return Sleep(ctx, d)
}

// Do calls work until it succeeds, fails permanently (fault.Kind.Transient), or the
// policy allows no further try. waiting, unless nil, is called before each wait with the
// failure that causes it. The error is the last failure; if the context ended during a
// wait, the cause of that stands before it.
func (p Policy) Do(ctx context.Context, waiting func(error, Pause), work func(context.Context) error) error {
	start := p.clock()
	for try := 1; ; try++ {
		err := work(ctx)
		if err == nil || ctx.Err() != nil || !fault.KindOf(err).Transient() {
			return err
		}
		took, wait := p.clock().Sub(start), p.Wait(try)
		if !p.allows(try+1, took+wait) {
			return &fault.Error{Kind: fault.Unavailable, Hint: fault.HintOf(err),
				Err: fmt.Errorf("gave up after %d tries in %s: %w", try, took.Round(time.Second), err)}
		}
		if waiting != nil {
			waiting(err, p.pauseAfter(try, wait, start))
		}
		if ended := p.Pause(ctx, wait); ended != nil {
			return fmt.Errorf("%w (%w)", ended, err)
		}
	}
}

// pauseAfter is the wait after a try of a run that began at start.
func (p Policy) pauseAfter(try int, wait time.Duration, start time.Time) Pause {
	pause := Pause{Try: try, Wait: wait}
	if p.Bound > 0 {
		pause.Until = start.Add(p.Bound)
	}
	return pause
}

// allows reports whether the policy allows the nth try so long after the start.
func (p Policy) allows(n int, after time.Duration) bool {
	switch {
	case p.Tries == 0 && p.Bound == 0:
		return false
	case p.Tries > 0 && n > p.Tries:
		return false
	}
	return p.Bound == 0 || after <= p.Bound
}

func (p Policy) clock() time.Time {
	if p.Now != nil {
		return p.Now()
	}
	return time.Now()
}

// Sleep waits, or fails with the cause of the context's end when that comes first.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
