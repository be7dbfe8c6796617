// Package retry says how long to wait before trying again. What is worth another
// try, and how often, is the caller's business.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff is a series of waits that double from First to Cap.
type Backoff struct {
	First, Cap time.Duration
}

// Wait is the wait after the nth failure in a row, counted from 1. Up to a
// quarter of it is left out at random, so that machines that failed together do
// not come back together.
func (b Backoff) Wait(n int) time.Duration {
	wait := b.First
	for ; n > 1 && 0 < wait && wait < b.Cap; n-- {
		wait *= 2
	}
	wait = min(wait, b.Cap)
	return wait - rand.N(wait/4+1)
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
