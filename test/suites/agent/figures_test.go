package agent

import (
	"syscall"
	"testing"
	"time"

	"machine-pivot/test/worlds/hostsystemd"
)

// TestFigures prints what an agent costs, and fails if it makes too many requests, or needs too much
// memory. The time to the first status depends on the machine, so it is
// only printed.
func TestFigures(t *testing.T) {
	const idle = 5 * time.Minute
	if testing.Short() {
		t.Skip("watches an agent for minutes")
	}
	if !hostsystemd.Inside(t) {
		return
	}
	w := newWorld(t)
	began := time.Now()
	agent := w.start()
	w.eventually("the first status", func() bool { return w.system() != "" })
	t.Logf("from its start to the first status: %.2f s", time.Since(began).Seconds())
	w.done("a")

	before := w.requests()
	w.want("b")
	w.done("b")
	change := w.requests() - before
	before = w.requests()
	time.Sleep(idle) // which is what is measured
	rest := w.requests() - before
	memory := float64(w.peak(agent.Process.Pid)) / 1e6
	t.Logf("requests: %d for a change without a reboot, %d in %s at rest; peak memory: %.1f MB", change, rest, idle, memory)
	if change > 40 || rest > int(idle.Minutes()) || memory > 40 {
		t.Error("that is too much")
	}
	agent.stop(syscall.SIGTERM)
}
