package node

import (
	"context"
	"time"

	backoff "machine-pivot/internal/retry"
)

// The times between steps that fail because the API server or systemd does not answer.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// Run does steps until ctx ends. wake ends a wait. Each wait is random, from half of its time to all: agents that have lost
// the API server together must not come back together.
func (a *Agent) Run(ctx context.Context, wake <-chan struct{}) {
	for failures := 0; ctx.Err() == nil; {
		a.Metrics.stepping(a.Now())
		wait, err := a.Step(ctx)
		if ctx.Err() != nil {
			return
		}
		a.Metrics.stepped(a.Now(), wait, err)
		switch {
		case err != nil:
			a.Log.WithError(err).Warn("cannot go on; tries again")
			failures++
			wait = backoff.Policy{First: firstRetry, Cap: lastRetry}.Wait(failures, nil)
		case wait > 0:
			failures, wait = 0, backoff.Policy{First: wait, Cap: wait}.Wait(1, nil)
		default:
			failures = 0
		}
		if wait > 0 && sleep(ctx, wait, err, wake) {
			a.forget()
		}
	}
}

// sleep waits for a time or, unless the last step has failed, until it is woken, and reports
// whether it was.
func sleep(ctx context.Context, wait time.Duration, failed error, wake <-chan struct{}) (woken bool) {
	if failed != nil {
		wake = nil // the API server may be what has failed: do not ask it for each of its signs
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
		return true
	case <-ctx.Done():
	}
	return false
}
