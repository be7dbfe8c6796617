package e2e_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"machine-pivot/test/worlds/vm"
)

// powered is a machine that is on while a test watches it: each time the guest reboots, it is booted again.
type powered struct {
	machine  *vm.Machine
	rebooted func()        // called at each reboot of the guest's own
	idle     time.Duration // see vm.Limits; 0: the default

	mu    sync.Mutex
	boots int      // power-ons and reboots so far
	lines []string // on the console, of all boots
	err   error    // why the machine is off, if nobody has cut its power
	cut   chan struct{}
	off   chan struct{} // closed when it is off
}

// powerOn powers the machine on, until the end of the test t or until cutPower.
func (p *powered) powerOn(t *testing.T) {
	p.cut, p.off = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(p.off)
		for p.boot(t) {
			p.rebooted()
		}
	}()
}

// boot boots the machine once, and reports whether the guest has rebooted. The guest's report, which ends
// with a power-off, is left out.
func (p *powered) boot(t *testing.T) bool {
	p.mu.Lock()
	p.boots++
	p.mu.Unlock()
	b, err := p.machine.Boot(t.Context(), vm.BootOptions{
		ExtraArgs: []string{"report.stay"}, Cut: p.cut, OnLine: p.line, Limits: vm.Limits{Idle: p.idle, Total: 2 * time.Hour},
	})
	if err == nil && b.Exit != vm.Rebooted && b.Exit != vm.Stopped {
		err = errors.New("the machine " + string(b.Exit))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
	return err == nil && b.Exit == vm.Rebooted
}

func (p *powered) line(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, text)
}

// cutPower cuts the machine's power.
func (p *powered) cutPower() {
	close(p.cut)
	<-p.off
}

// failure returns why the machine is off, if nobody has cut its power.
func (p *powered) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// booted returns the number of boots so far.
func (p *powered) booted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.boots
}

// console returns the lines on the console after the first ones, of all boots.
func (p *powered) console(first int) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lines[first:]
}

// says reports whether a line on the console, after the first ones, has a text.
func (p *powered) says(first int, text string) bool {
	return strings.Contains(strings.Join(p.console(first), "\n"), text)
}

// until waits until something is reached. It fails when the machine hangs, idles without a line on its
// console, or takes too long: see vm.Limits.
func (p *powered) until(t *testing.T, what string, reached func() bool) {
	t.Helper()
	began := time.Now()
	for !reached() {
		if err := p.failure(); err != nil {
			t.Fatalf("this never happens: %s: %v", what, err)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatalf("this did not happen in time: %s", what)
		}
	}
	t.Logf("%.0f s until %s", time.Since(began).Seconds(), what)
}
