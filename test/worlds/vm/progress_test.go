package vm

import (
	"context"
	"errors"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

// phase is a period in which a simulated machine behaves the same.
type phase struct {
	lasts time.Duration
	speed float64       // how much CPU time the machine uses, in processors
	runs  float64       // share of the time in which the machine is runnable
	line  time.Duration // interval between two console lines; 0: no lines
}

// TestProgress simulates machines and checks when and why they are killed.
func TestProgress(t *testing.T) {
	limits := Limits{Idle: 3 * time.Minute, Spin: 5 * time.Minute, Total: 30 * time.Minute}
	boots := phase{lasts: 40 * time.Second, speed: 1.5, runs: 1, line: time.Second}
	for _, c := range []struct {
		name     string
		phases   []phase
		end      Reason        // "": it is not killed
		from, to time.Duration // when it must be killed
		says     string
	}{
		{"an ordinary boot", []phase{boots, {lasts: 30 * time.Second, speed: 1.8, runs: 1}, boots}, "", 0, 0, ""},
		{"hangs idle", []phase{boots, {lasts: time.Hour, speed: 0.03, runs: 0.03}}, Hung, 220 * time.Second, 320 * time.Second, "idle"},
		{"hangs idle on a busy host", []phase{boots, {lasts: time.Hour, speed: 0.01, runs: 0.05}}, Hung, 220 * time.Second, 420 * time.Second, "idle"},
		{"hangs idle on a host that is busier still", []phase{boots, {lasts: time.Hour, speed: 0.03, runs: 0.3}}, Hung, 220 * time.Second, 520 * time.Second, "idle"},
		{"spins silently", []phase{boots, {lasts: time.Hour, speed: 1, runs: 1}}, Hung, 340 * time.Second, 345 * time.Second, "processor"},
		{"spins on two processors", []phase{boots, {lasts: time.Hour, speed: 2, runs: 1}}, Hung, 190 * time.Second, 195 * time.Second, "processor"},
		{"slow on a busy host", []phase{
			{lasts: 10 * time.Minute, speed: 0.1, runs: 1, line: 20 * time.Second},
			{lasts: 15 * time.Minute, speed: 0.1, runs: 1},
		}, "", 0, 0, ""},
		{"gets no processor for a while", []phase{boots, {lasts: 10 * time.Minute, speed: 0, runs: 1}, boots}, "", 0, 0, ""},
		{"waits for somebody, then goes on", []phase{boots, {lasts: 170 * time.Second, speed: 0.02, runs: 0.02}, boots}, "", 0, 0, ""},
		{"waits often, never for long", []phase{
			boots, {lasts: 90 * time.Second, speed: 0.02, runs: 0.02}, {lasts: 50 * time.Second, speed: 1, runs: 1},
			{lasts: 90 * time.Second, speed: 0.02, runs: 0.02}, {lasts: 50 * time.Second, speed: 1, runs: 1},
			{lasts: 90 * time.Second, speed: 0.02, runs: 0.02}, boots,
		}, "", 0, 0, ""},
		{"says the same for ever", []phase{{lasts: time.Hour, speed: 0.02, runs: 0.02, line: time.Second}}, TimedOut, 30 * time.Minute, 30*time.Minute + time.Second, "30m"},
	} {
		t.Run(c.name, func(t *testing.T) {
			at, err := simulate(&progress{limits: limits, every: sampleInterval}, c.phases)
			if got, _ := errors.AsType[endError](err); got.reason != c.end || !strings.Contains(got.line, c.says) {
				t.Fatalf("%v after %s, want %q", err, at, c.end)
			}
			if err != nil && (at < c.from || at > c.to) {
				t.Errorf("given up after %s, want %s to %s", at, c.from, c.to)
			}
		})
	}
}

// simulate returns when and why a machine with these phases is killed.
func simulate(p *progress, phases []phase) (time.Duration, error) {
	const step = sampleInterval
	var s sample
	var since time.Duration // time since the last line
	n := 0
	for _, l := range phases {
		for end := s.at + l.lasts; s.at < end; {
			s.at += step
			s.cpuTime += time.Duration(l.speed * float64(step))
			s.runnable = int(float64(n+1)*l.runs) > int(float64(n)*l.runs) // evenly spread
			n++
			if since += step; l.line > 0 && since >= l.line {
				s.lines, since = s.lines+1, 0
			}
			if err := p.observe(s); err != nil {
				return s.at, err
			}
		}
	}
	return s.at, nil
}

// TestLateSigns checks that the time before a late sample does not count as idle time in full. The test process was
// stopped for a while, and the guest may have been stopped too.
func TestLateSigns(t *testing.T) {
	p := &progress{limits: Limits{Idle: time.Minute, Spin: time.Minute, Total: time.Hour}, every: sampleInterval}
	for _, at := range []time.Duration{1, 2, 600, 601, 602} {
		if err := p.observe(sample{at: at * time.Second}); err != nil {
			t.Errorf("after %d s: %v", at, err)
		}
	}
}

// TestWatch watches real processes.
func TestWatch(t *testing.T) {
	if testing.Short() {
		t.Skip("uses the processor for seconds; not in a short run")
	}
	const spin = "while :; do :; done"
	for _, c := range []struct {
		name   string
		argv   []string
		limits Limits
		end    Reason
	}{
		{"idle", []string{"sleep", "600"}, Limits{Idle: time.Second / 2, Spin: time.Hour, Total: time.Hour}, Hung},
		{"spinning", []string{"sh", "-c", spin}, Limits{Idle: time.Hour, Spin: time.Second / 2, Total: time.Hour}, Hung},
		{"ends by itself", []string{"true"}, Limits{Idle: time.Hour, Spin: time.Hour, Total: time.Hour}, ""},
		// SCHED_IDLE: it runs only when nothing else does.
		{"pushed aside", []string{"chrt", "-i", "0", "sh", "-c", spin}, Limits{Idle: time.Second / 4, Spin: time.Hour, Total: time.Second}, TimedOut},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			for range runtime.NumCPU() {
				go func() {
					for c.end == TimedOut && ctx.Err() == nil {
					}
				}()
			}
			cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			go watch(ctx, cancel, processProgress(cmd.Process.Pid), func() consoleState { return consoleState{} }, c.limits, 20*time.Millisecond)
			werr := cmd.Wait()
			got, _ := errors.AsType[endError](context.Cause(ctx))
			if got.reason != c.end || (werr != nil) != (c.end != "") {
				t.Errorf("%v, %v, want %q", context.Cause(ctx), werr, c.end)
			}
		})
	}
}
