// Package guard protects a process from what it does not trust: data, and clients.
//
// A Budget bounds what an input may expand to. Call, Start and a Group run functions so that a panic becomes an error of the
// work at hand, instead of ending the process. A panic over untrusted data must fail only that import, with its cause, and
// the cleanup must still run.
//
// A panic is a defect whatever the data was, so the error has kind fault.Internal. What Go
// cannot recover from (a fatal error, such as a stack overflow) and panics in goroutines that
// libraries start still end the process.
//
// Each listener that somebody else can reach has limits on what the process holds for clients. A Listener limits their
// connections, Bodies the bytes of their requests, and a Server the time of both.
package guard

import (
	"context"
	"fmt"
	"path"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"

	"machine-pivot/internal/fault"
)

// Panic is an error for a panic.
type Panic struct {
	Value any    // what the function panicked with
	Where string // the call stack on one line, innermost call first
}

func (p *Panic) Error() string { return fmt.Sprintf("panic: %v (in %s)", p.Value, p.Where) }

// Unwrap returns the value if it is an error, otherwise nil.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// Call calls f. If f panics, Call returns the panic as an error.
func Call(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fault.New(fault.Internal, "%w", &Panic{value, callers()}).
				WithHint("this is a defect of pivot; report it with this message")
		}
	}()
	return f()
}

// maxCalls limits the number of calls in Panic.Where.
const maxCalls = 8

// callers returns the call stack at the panic.
func callers() string {
	var counters [64]uintptr
	frames := runtime.CallersFrames(counters[:runtime.Callers(0, counters[:])])
	var calls []string
	for more, panicked := true, false; more && len(calls) < maxCalls; {
		var f runtime.Frame
		f, more = frames.Next()
		switch {
		case f.Function == "runtime.gopanic":
			panicked, calls = true, nil // if panics are nested, start over at the first
		case panicked && !strings.HasPrefix(f.Function, "runtime."):
			calls = append(calls, fmt.Sprintf("%s %s:%d", path.Base(f.Function), path.Base(f.File), f.Line))
		}
	}
	return strings.Join(calls, " < ")
}

// Start calls f in a new goroutine. The channel delivers its error, once.
func Start(f func() error) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- Call(f) }()
	return ended
}

// Group is a set of goroutines that work on one task. The first error cancels their shared
// context.
type Group struct{ group *errgroup.Group }

// NewGroup returns a group and the context that its functions must obey.
func NewGroup(ctx context.Context) (*Group, context.Context) {
	group, ctx := errgroup.WithContext(ctx)
	return &Group{group}, ctx
}

// Limit limits how many functions run at once. Start blocks when the limit is reached.
func (g *Group) Limit(n int) { g.group.SetLimit(n) }

// Start calls f in a new goroutine of the group.
func (g *Group) Start(f func() error) { g.group.Go(func() error { return Call(f) }) }

// Wait waits for all functions and returns the first error.
func (g *Group) Wait() error { return g.group.Wait() }
