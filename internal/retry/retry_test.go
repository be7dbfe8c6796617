package retry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
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
			if got := p.Wait(n, errors.New("down")); got > most || got < most/2 {
				t.Errorf("after %d failures: %s, want between half of %s and all of it", n, got, most)
			}
		}
	}
	if got := (retry.Policy{}).Wait(3, nil); got != 0 {
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
		tries  int // at most: if each wait is as short as it can be, half as long as without jitter
		took   time.Duration
	}{
		{retry.Policy{}, 1, 0},
		{retry.Policy{First: time.Second, Cap: 4 * time.Second, Bound: time.Minute}, 33, time.Minute},
		{retry.Policy{First: time.Second, Cap: 4 * time.Second, Tries: 3}, 3, 3 * time.Second},
		{retry.Policy{First: time.Second, Cap: time.Second, Tries: 100, Bound: time.Minute}, 100, time.Minute},
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

// TestSpread: tries of machines that failed together are spread over all of the time, also if they were
// all told the same wait. No second has more than three times as many as with an even spread.
func TestSpread(t *testing.T) {
	const machines = 10000
	p := retry.Policy{First: time.Second, Cap: 30 * time.Second}
	asked := retry.WithAsked(errors.New("busy"), fields("Retry-After", "20"))
	for name, c := range map[string]struct {
		err      error
		from, to int // the interval, in seconds
	}{"after the third failure": {errors.New("down"), 3, 7}, "asked for 20 s": {asked, 60, 90}} {
		tries := map[int]int{}
		for range machines {
			at := time.Duration(0)
			for n := range 3 {
				at += p.Wait(n+1, c.err)
			}
			tries[int(at/time.Second)]++
		}
		for second, n := range tries {
			if most := 3 * machines / (c.to - c.from); n > most || second < c.from || second > c.to {
				t.Errorf("%s: %d of %d tries in second %d", name, n, machines, second)
			}
		}
	}
}

// fields returns the header with the given names and values.
func fields(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

// TestAsked: what a server asks for is obeyed up to a minute, whatever this machine's clock says, and
// machines that are told the same do not come back together. Nonsense is ignored.
func TestAsked(t *testing.T) {
	const date = "Wed, 25 Nov 1998 20:00:00 GMT"
	for _, c := range []struct {
		after, date string
		want        time.Duration
	}{
		{"7", "", 7 * time.Second}, {"0", "", 0}, {"61", "", time.Minute}, {"99999999999999999999999", "", time.Minute},
		{"", "", 0}, {"-1", "", 0}, {"1.5", "", 0}, {"soon", "", 0},
		{"Wed, 25 Nov 1998 20:00:09 GMT", date, 9 * time.Second}, {"Wed, 25 Nov 1998 21:00:00 GMT", date, time.Minute},
		{"Wed, 25 Nov 1998 19:00:00 GMT", date, 0}, {"Wed, 25 Nov 1998 20:00:09 GMT", "", 0}, // long ago, by this machine's clock
	} {
		err := fmt.Errorf("wrapped: %w", retry.WithAsked(fault.New(fault.Unavailable, "busy"), fields("Retry-After", c.after, "Date", c.date)))
		if got := retry.AskedBy(err); got != c.want || fault.KindOf(err) != fault.Unavailable || err.Error() != "wrapped: busy" {
			t.Errorf("%+v: %s, %v", c, got, err)
		}
		waits := map[time.Duration]bool{}
		for range 20 {
			wait := (retry.Policy{First: time.Millisecond, Cap: time.Millisecond}).Wait(1, err)
			if waits[wait] = true; wait < c.want || wait > max(c.want*3/2, 2*time.Millisecond) {
				t.Errorf("%+v: waits %s", c, wait)
			}
		}
		if len(waits) < 2 {
			t.Errorf("%+v: 20 machines wait alike: %v", c, waits)
		}
	}
	if got := (retry.Policy{First: time.Minute, Cap: time.Minute}).Wait(1, retry.Asked{After: time.Second, Err: io.EOF}); got < time.Minute {
		t.Errorf("a short request shortens the wait to %s", got)
	}
}

// TestDoIsAsked: work waits for as long as the server asks for, within its bound.
func TestDoIsAsked(t *testing.T) {
	busy := retry.Asked{After: 40 * time.Second, Err: fault.New(fault.Unavailable, "busy")}
	p, waits := onClock(retry.Policy{First: time.Second, Cap: time.Second, Bound: 3 * time.Minute})
	err := p.Do(t.Context(), nil, func(context.Context) error { return busy })
	if fault.KindOf(err) != fault.Unavailable || len(*waits) < 3 || len(*waits) > 4 || slices.Min(*waits) < busy.After {
		t.Errorf("waits %v, %v", *waits, err)
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
