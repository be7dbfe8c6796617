package vm

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Limits end a machine that gets nowhere. They go by what the guest does: on a
// busy host it takes several times as long, and has not failed for that. A zero
// stands for the limit in DefaultLimits.
type Limits struct {
	Idle  time.Duration // without a line on the console, while nothing of the guest could run
	Spin  time.Duration // without a line on the console, in processor time that the guest used
	Stuck time.Duration // from the kernel's first report of a stall to a later one, in the same measure
	Total time.Duration // of wall time, whatever the guest does
}

// DefaultLimits let a guest wait longer for a network than systemd-networkd does
// (two minutes), compute five times more than an emulated machine does between
// two lines, and take thirty times as long as one does on a host of its own. A stall
// may last three times as long as one that was seen to heal, on a busy host: the
// kernel then spent each tick on the tick itself, for a minute of processor time.
func DefaultLimits() Limits {
	return Limits{Idle: 3 * time.Minute, Spin: 5 * time.Minute, Stuck: 3 * time.Minute, Total: 30 * time.Minute}
}

func (l Limits) orDefault() Limits {
	d := DefaultLimits()
	return Limits{
		Idle: cmp.Or(l.Idle, d.Idle), Spin: cmp.Or(l.Spin, d.Spin), Stuck: cmp.Or(l.Stuck, d.Stuck), Total: cmp.Or(l.Total, d.Total),
	}
}

// sign is what a look at a running machine shows.
type sign struct {
	at     time.Duration // since power-on
	told                 // on its console, so far
	worked time.Duration // processor time that it has used
	runs   bool          // something of it runs, or waits for a processor or a disk of the host
}

// progress judges a machine by the signs of it, the last of which it holds.
type progress struct {
	limits Limits
	every  time.Duration // how far apart two signs are, if the host is not busy
	last   sign
	idle   time.Duration // see take
	spoke  time.Duration // what it had worked at its last line
	well   time.Duration // what it had worked when its kernel had no stall to report
}

// idleShare of a processor is what a machine uses at most from one look to the next
// while it is idle. It never rests entirely: timers of the guest wake it up.
const idleShare = 0.1

// take takes the next sign. An error, of type over, says why the machine shall
// live no longer.
//
// A guest that waits runs for a moment now and then, for longer ones on a busy host,
// and one that works waits now and then. So the time in which it runs counts against
// the time in which it does not: a guest that runs half of the time is never idle.
func (p *progress) take(s sign) error {
	passed := s.at - p.last.at
	active := s.runs || (s.worked-p.last.worked).Seconds() > idleShare*passed.Seconds()
	switch {
	case s.lines != p.last.lines:
		p.idle, p.spoke = 0, s.worked
	case active:
		p.idle = max(0, p.idle-passed)
	default:
		// A sign that comes late says that this process was stopped or starved. So was the guest, perhaps.
		p.idle += min(passed, 2*p.every)
	}
	if s.stalls == 0 || s.lines != p.last.lines {
		p.well = s.worked
	}
	again := s.stalls > p.last.stalls
	p.last = s
	switch l := p.limits; {
	case again && s.worked-p.well >= l.Stuck:
		return over{Hung, s.stall}
	case p.idle >= l.Idle:
		return over{Hung, fmt.Sprintf("idle, and no line on its console, for %s", l.Idle)}
	case s.worked-p.spoke >= l.Spin:
		return over{Hung, fmt.Sprintf("no line on its console for %s of processor time", l.Spin)}
	case s.at >= l.Total:
		return over{TimedOut, fmt.Sprintf("no end after %s", l.Total)}
	}
	return nil
}

// watch looks at a process again and again until ctx is done. It cancels ctx, with
// an error of type over, when the limits say so.
func watch(ctx context.Context, cancel context.CancelCauseFunc, pid int, said func() told, limits Limits, every time.Duration) {
	p := progress{limits: limits, every: every}
	start := time.Now()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		s := sign{at: time.Since(start), told: said(), worked: worked(pid), runs: runs(pid)}
		if err := p.take(s); err != nil {
			cancel(err)
		}
	}
}

// worked is the processor time that a process with all its threads has used; 0
// if it has ended.
func worked(pid int) time.Duration {
	const whole, scheduler = 3, 2 // the kernel's clock of a process, as clock_getcpuclockid(3) composes it
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<whole|scheduler), &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// runs reports whether a thread of a process runs, or would if it had a processor,
// or waits for a disk: states R and D of proc(5).
func runs(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return false
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err != nil {
			continue // it has just ended
		}
		state := string(stat[strings.LastIndex(string(stat), ")")+1:]) // a name can hold anything
		if strings.HasPrefix(state, " R") || strings.HasPrefix(state, " D") {
			return true
		}
	}
	return false
}
