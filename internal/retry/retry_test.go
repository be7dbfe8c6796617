package retry_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/retry"
)

func TestWait(t *testing.T) {
	p := retry.Policy{First: time.Second, Cap: 30 * time.Second}
	for n, most := range map[int]time.Duration{
		1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 6: 30 * time.Second, math.MaxInt: 30 * time.Second,
	} {
		for range 100 {
			if got := p.Wait(n); got > most || got < most*3/4 {
				t.Errorf("after %d failures: %s, want up to a quarter less than %s", n, got, most)
			}
		}
	}
	if got := (retry.Policy{}).Wait(3); got != 0 {
		t.Errorf("the zero value waits %s", got)
	}
}

// down is work that always fails for a transient reason.
func down(context.Context) error {
	return fault.New(fault.Unavailable, "connection refused").WithHint("start the registry")
}

// onClock returns p with a fake clock that advances only during waits, and the waits.
func onClock(p retry.Policy) (retry.Policy, *[]time.Duration) {
	var waits []time.Duration
	clock := time.Now()
	p.Now = func() time.Time { return clock }
	p.Sleep = func(_ context.Context, d time.Duration) error {
		waits, clock = append(waits, d), clock.Add(d)
		return nil
	}
	return p, &waits
}

// TestDoIsBounded (P7): work is not retried for longer than the bound, nor more often than
// allowed, and the error names the last failure.
func TestDoIsBounded(t *testing.T) {
	for _, c := range []struct {
		policy retry.Policy
		tries  int // at most
		took   time.Duration
	}{
		{retry.Policy{}, 1, 0},
		{retry.Policy{First: time.Second, Cap: 4 * time.Second, Bound: time.Minute}, 25, time.Minute},
		{retry.Policy{First: time.Second, Cap: 4 * time.Second, Tries: 3}, 3, 3 * time.Second},
		{retry.Policy{First: time.Second, Cap: time.Second, Tries: 100, Bound: time.Minute}, 81, time.Minute},
	} {
		p, waits := onClock(c.policy)
		err := p.Do(t.Context(), nil, down)
		if fault.KindOf(err) != fault.Unavailable || fault.HintOf(err) != "start the registry" {
			t.Errorf("%+v: %v, hint %q", c.policy, err, fault.HintOf(err))
		}
		if !strings.HasPrefix(err.Error(), "gave up after ") || !strings.HasSuffix(err.Error(), ": connection refused") {
			t.Errorf("%+v: %v", c.policy, err)
		}
		var sum time.Duration
		for _, w := range *waits {
			sum += w
		}
		if len(*waits)+1 > c.tries || sum > c.took || sum < c.took/2 {
			t.Errorf("%+v: %d tries in %s, want at most %d in at most %s", c.policy, len(*waits)+1, sum, c.tries, c.took)
		}
	}
}

// TestDoHasJitter: machines that failed together do not retry together.
func TestDoHasJitter(t *testing.T) {
	first := map[time.Duration]bool{}
	for range 20 {
		p, waits := onClock(retry.Policy{First: time.Second, Cap: time.Second, Tries: 2})
		if err := p.Do(t.Context(), nil, down); err == nil || len(*waits) != 1 {
			t.Fatalf("waits %v, %v", *waits, err)
		}
		first[(*waits)[0]] = true
	}
	if len(first) < 2 {
		t.Errorf("20 machines wait alike: %v", first)
	}
}

// TestDo: only transient failures are retried, and each wait is reported with its reason.
func TestDo(t *testing.T) {
	p, _ := onClock(retry.Policy{First: time.Second, Cap: time.Second, Tries: 10})
	tries, reported := 0, 0
	waiting := func(err error, pause retry.Pause) {
		if reported++; pause.Try != reported || pause.Wait > time.Second || !pause.Until.IsZero() || fault.KindOf(err) != fault.Unavailable {
			t.Errorf("wait %d: %v, %s", reported, err, pause)
		}
	}
	err := p.Do(t.Context(), waiting, func(ctx context.Context) error {
		if tries++; tries < 4 {
			return down(ctx)
		}
		return nil
	})
	if err != nil || tries != 4 || reported != 3 {
		t.Errorf("%d tries, %d waits, %v", tries, reported, err)
	}
	tries = 0
	refused := fault.New(fault.Refused, "unauthorized")
	if err := p.Do(t.Context(), waiting, func(context.Context) error { tries++; return refused }); err != error(refused) || tries != 1 {
		t.Errorf("%d tries, %v", tries, err)
	}
}

// TestDoIsCancelled: if a wait is cancelled, the error has the cause and the last failure.
func TestDoIsCancelled(t *testing.T) {
	reason := fault.New(fault.Later, "the initramfs waits no longer")
	ctx, cancel := context.WithCancelCause(t.Context())
	p := retry.Policy{First: time.Hour, Cap: time.Hour, Tries: 2}
	err := p.Do(ctx, func(error, retry.Pause) { cancel(reason) }, down)
	if !errors.Is(err, reason) || !strings.Contains(err.Error(), "connection refused") || fault.KindOf(err) != fault.Later {
		t.Errorf("%v", err)
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
