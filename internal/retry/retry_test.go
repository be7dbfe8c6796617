package retry_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"machine-pivot/internal/retry"
)

func TestWait(t *testing.T) {
	b := retry.Backoff{First: time.Second, Cap: 30 * time.Second}
	for n, most := range map[int]time.Duration{
		1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 6: 30 * time.Second, math.MaxInt: 30 * time.Second,
	} {
		for range 100 {
			if got := b.Wait(n); got > most || got < most*3/4 {
				t.Errorf("after %d failures: %s, want up to a quarter less than %s", n, got, most)
			}
		}
	}
	if got := (retry.Backoff{}).Wait(3); got != 0 {
		t.Errorf("the zero value waits %s", got)
	}
}

func TestSleep(t *testing.T) {
	if err := retry.Sleep(t.Context(), time.Nanosecond); err != nil {
		t.Error(err)
	}
	reason := errors.New("reason")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	if err := retry.Sleep(ctx, time.Hour); !errors.Is(err, reason) {
		t.Errorf("%v", err)
	}
}
