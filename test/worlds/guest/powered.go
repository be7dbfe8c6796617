// Package guest keeps machines of test/worlds/vm on while somebody watches them, and has a shell on each.
package guest

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"machine-pivot/test/worlds/testenv"
	"machine-pivot/test/worlds/vm"
)

// Powered is a machine that is on: each time the guest reboots, it is booted again.
type Powered struct {
	Machine  *vm.Machine
	Rebooted func()        // called at each reboot of the guest's own
	Idle     time.Duration // see vm.Limits; 0: the default

	mu    sync.Mutex
	boots int      // power-ons and reboots so far
	lines []string // on the console, of all boots
	err   error    // why the machine is off, if nobody has cut its power
	cut   chan struct{}
	off   chan struct{} // closed when it is off
}

// PowerOn powers the machine on, until the end of t or until CutPower.
func (p *Powered) PowerOn(t testenv.T) {
	p.cut, p.off = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(p.off)
		for p.boot(t) {
			p.Rebooted()
		}
	}()
}

// boot boots the machine once, and reports whether the guest has rebooted. The guest's report, which ends
// with a power-off, is left out.
func (p *Powered) boot(t testenv.T) bool {
	p.mu.Lock()
	p.boots++
	p.mu.Unlock()
	b, err := p.Machine.Boot(t.Context(), vm.BootOptions{
		ExtraArgs: []string{"report.stay"}, Cut: p.cut, OnLine: p.line, Limits: vm.Limits{Idle: p.Idle, Total: 2 * time.Hour},
	})
	if err == nil && b.Exit != vm.Rebooted && b.Exit != vm.Stopped {
		err = errors.New("the machine " + string(b.Exit))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
	return err == nil && b.Exit == vm.Rebooted
}

func (p *Powered) line(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lines = append(p.lines, text)
}

// CutPower cuts the machine's power.
func (p *Powered) CutPower() {
	close(p.cut)
	<-p.off
}

// Booted returns the number of boots so far.
func (p *Powered) Booted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.boots
}

// Err returns why the machine is off; nil if it is on, or if its power was cut.
func (p *Powered) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Console returns the lines on the console after the first ones, of all boots.
func (p *Powered) Console(first int) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lines[first:]
}

// Says reports whether a line on the console, after the first ones, has a text.
func (p *Powered) Says(first int, text string) bool {
	return strings.Contains(strings.Join(p.Console(first), "\n"), text)
}

// KeepConsole writes the console to a temporary file, and returns its name.
func (p *Powered) KeepConsole() (string, error) {
	file, err := os.CreateTemp("", "console-*.log")
	if err != nil {
		return "", fmt.Errorf("cannot keep the console: %w", err)
	}
	_, err = file.WriteString(strings.Join(p.Console(0), "\n"))
	return file.Name(), errors.Join(err, file.Close())
}

// Until waits until something is reached. It fails when the machine hangs, idles without a line on its
// console, or takes too long: see vm.Limits.
func (p *Powered) Until(t testenv.T, what string, reached func() bool) {
	t.Helper()
	UntilAll(t, what, reached, p)
}

// UntilAll is like Until, with several machines. It fails when one of them does.
func UntilAll(t testenv.T, what string, reached func() bool, all ...*Powered) {
	t.Helper()
	began := time.Now()
	for !reached() {
		for _, p := range all {
			if err := p.Err(); err != nil {
				t.Fatalf("this never happens: %s: %v", what, err)
			}
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatalf("this did not happen in time: %s", what)
		}
	}
	t.Logf("%.0f s until %s", time.Since(began).Seconds(), what)
}
