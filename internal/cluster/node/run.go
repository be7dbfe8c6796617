package node

import (
	"context"
	"time"
)

// The times between steps that fail because the API server or systemd does not answer.
const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// Run does steps until ctx ends. wake ends a wait.
func (a *Agent) Run(ctx context.Context, wake <-chan struct{}) {
	for retry := firstRetry; ctx.Err() == nil; {
		a.Metrics.stepping(a.Now())
		wait, err := a.Step(ctx)
		if ctx.Err() != nil {
			return
		}
		a.Metrics.stepped(a.Now(), wait, err)
		if err == nil {
			retry = firstRetry
		} else {
			a.Log.WithError(err).Warn("cannot go on; tries again")
			wait, retry = retry, min(2*retry, lastRetry)
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
