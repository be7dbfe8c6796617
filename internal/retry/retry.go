// Package retry retries work that fails for a transient reason, with exponential backoff.
package retry

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"machine-pivot/internal/fault"
)

// Policy says when work is retried. The zero value tries once.
type Policy struct {
	First, Cap time.Duration // the waits double from First up to Cap
	Bound      time.Duration // time limit of all tries and waits together; 0 is no limit if Tries is set
	Tries      int           // maximal number of tries; 0 is any number within Bound

	Sleep func(context.Context, time.Duration) error // waits, or fails when the context ends; nil is Sleep
	Now   func() time.Time                           // nil is time.Now
}

// Wait returns the wait after the nth failure in a row, counted from 1, which is err. It is chosen at
// random from an interval, so that machines that failed together do not retry together.
//
// A wait that doubles lasts from half of its value to the whole value. The intervals of successive tries then nearly
// touch, and the tries of many machines are spread over all of the time.
//
// A wait that the server asks for (Asked) does not double, and is never shortened: it lasts up to
// half as long again.
func (p Policy) Wait(n int, err error) time.Duration {
	if asked := AskedBy(err); asked > 0 {
		asked = max(asked, p.First)
		return asked + rand.N(asked/2+1)
	}
	wait := p.First
	for ; n > 1 && 0 < wait && wait < p.Cap; n-- {
		wait *= 2
	}
	wait = min(wait, p.Cap)
	return wait - rand.N(wait/2+1)
}

// Pause is the wait between two tries.
type Pause struct {
	Try   int           // number of the failed try, from 1
	Wait  time.Duration // until the next try
	Until time.Time     // no try begins after this time; zero if there is no limit
}

// String returns the pause for display.
func (p Pause) String() string {
	text := fmt.Sprintf("try %d failed, next in %s", p.Try, p.Wait.Round(time.Millisecond))
	if !p.Until.IsZero() {
		text += ", and so on until " + p.Until.Format("15:04:05")
	}
	return text
}

// Pause waits for d. It returns an error if the context ends first.
func (p Policy) Pause(ctx context.Context, d time.Duration) error {
	if p.Sleep != nil {
		return p.Sleep(ctx, d)
	}
	return Sleep(ctx, d)
}

// Do calls work until it succeeds, fails permanently (see fault.Kind.Transient), or the policy
// allows no further try. Before each wait it calls waiting, unless that is nil, with the failure
// that causes the wait. The returned error is the last failure. If the context ended during a
// wait, the error also wraps the cause of that and mentions it first.
func (p Policy) Do(ctx context.Context, waiting func(error, Pause), work func(context.Context) error) error {
	start := p.clock()
	for try := 1; ; try++ {
		err := work(ctx)
		if err == nil || ctx.Err() != nil || !fault.KindOf(err).Transient() {
			return err
		}
		took, wait := p.clock().Sub(start), p.Wait(try, err)
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

// pauseAfter returns the pause after the given try. start is when the first try began.
func (p Policy) pauseAfter(try int, wait time.Duration, start time.Time) Pause {
	pause := Pause{Try: try, Wait: wait}
	if p.Bound > 0 {
		pause.Until = start.Add(p.Bound)
	}
	return pause
}

// allows reports whether the policy allows the nth try at the time after since the start.
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

// Sleep waits for d. If the context ends first, it returns the cause.
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
