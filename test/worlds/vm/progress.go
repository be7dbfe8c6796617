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

// Limits decide when a machine makes no progress and is killed. Except for Total they measure
// what the guest does instead of wall time: on a busy host a boot takes several times as long
// without being stuck. A zero means the limit in DefaultLimits.
type Limits struct {
	Idle  time.Duration // idle time without a line on the console
	Spin  time.Duration // CPU time used without a line on the console
	Stuck time.Duration // CPU time used between the kernel's first report of a stall and a later one
	Total time.Duration // wall time of the boot
}

// DefaultLimits returns the default limits. Idle is longer than systemd-networkd waits for a network (two minutes), and
// Spin five times the CPU time of an emulated machine between two lines. Total is thirty times the duration of a boot
// on an idle host. Stuck is three times the longest stall from which a guest is known to have recovered. On a busy
// host, its kernel handled nothing but timer ticks for a minute of CPU time.
func DefaultLimits() Limits {
	return Limits{Idle: 3 * time.Minute, Spin: 5 * time.Minute, Stuck: 3 * time.Minute, Total: 30 * time.Minute}
}

func (l Limits) orDefault() Limits {
	d := DefaultLimits()
	return Limits{
		Idle: cmp.Or(l.Idle, d.Idle), Spin: cmp.Or(l.Spin, d.Spin), Stuck: cmp.Or(l.Stuck, d.Stuck), Total: cmp.Or(l.Total, d.Total),
	}
}

// sample is the state of a running machine at one point in time.
type sample struct {
	at time.Duration // since power-on
	consoleState
	cpuTime  time.Duration // used so far
	runnable bool          // a thread runs, or waits for a CPU or a disk of the host
}

// progress decides from a sequence of samples whether a machine makes progress.
type progress struct {
	limits    Limits
	every     time.Duration // interval between two samples, if the host is not busy
	last      sample
	idle      time.Duration // see observe
	lineAt    time.Duration // CPU time at the last line
	healthyAt time.Duration // CPU time when the kernel last had no stall to report
}

// idleShare is the share of a processor that a machine may use between two samples and still count
// as idle. It is not zero, because the guest's timers wake up even an idle machine.
const idleShare = 0.1

// observe adds the next sample. It returns an error of type endError if the machine has reached a
// limit.
//
// A waiting guest runs for a moment now and then, and for longer on a busy host; a working guest
// waits now and then. So active time is subtracted from idle time: a guest that is active half of
// the time never counts as idle.
func (p *progress) observe(s sample) error {
	passed := s.at - p.last.at
	active := s.runnable || (s.cpuTime-p.last.cpuTime).Seconds() > idleShare*passed.Seconds()
	switch {
	case s.lines != p.last.lines:
		p.idle, p.lineAt = 0, s.cpuTime
	case active:
		p.idle = max(0, p.idle-passed)
	default:
		// If the sample is late, this process was stopped or starved, and perhaps the guest was too.
		p.idle += min(passed, 2*p.every)
	}
	if s.stalls == 0 || s.lines != p.last.lines {
		p.healthyAt = s.cpuTime
	}
	again := s.stalls > p.last.stalls
	p.last = s
	switch l := p.limits; {
	case again && s.cpuTime-p.healthyAt >= l.Stuck:
		return endError{Hung, s.stall}
	case p.idle >= l.Idle:
		return endError{Hung, fmt.Sprintf("idle, and no line on its console, for %s", l.Idle)}
	case s.cpuTime-p.lineAt >= l.Spin:
		return endError{Hung, fmt.Sprintf("no line on its console for %s of processor time", l.Spin)}
	case s.at >= l.Total:
		return endError{TimedOut, fmt.Sprintf("no end after %s", l.Total)}
	}
	return nil
}

// watch samples a machine at regular intervals until ctx is done. When the machine reaches a limit,
// watch cancels ctx with an error of type endError.
func watch(ctx context.Context, cancel context.CancelCauseFunc, use func() Progress, state func() consoleState, limits Limits, every time.Duration) {
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
		u := use()
		s := sample{at: time.Since(start), consoleState: state(), cpuTime: u.CPU, runnable: u.Active}
		if err := p.observe(s); err != nil {
			cancel(err)
		}
	}
}

// processProgress returns the progress of a machine that is a process.
func processProgress(pid int) func() Progress {
	return func() Progress { return Progress{CPU: cpuTime(pid), Active: runnable(pid)} }
}

// cpuTime returns the CPU time that all threads of a process have used; 0 if the process has ended.
func cpuTime(pid int) time.Duration {
	const whole, scheduler = 3, 2 // the process's CPU clock ID, composed as in clock_getcpuclockid(3)
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<whole|scheduler), &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// runnable reports whether a thread of a process runs, waits for a processor, or waits for a disk:
// states R and D in proc(5).
func runnable(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return false
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err != nil {
			continue // it has just ended
		}
		state := string(stat[strings.LastIndex(string(stat), ")")+1:]) // a thread's name may contain anything
		if strings.HasPrefix(state, " R") || strings.HasPrefix(state, " D") {
			return true
		}
	}
	return false
}
