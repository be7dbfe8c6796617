// Package guard starts goroutines whose panic becomes an error: of the work that
// they belong to, not the end of the process. What a program does with data that
// others made shall fail as one import, with its cause, and be cleaned up after.
//
// A panic is a defect whatever the data was, so it has the kind fault.Internal. What
// Go does not let be recovered (a fatal error, such as a stack that overflows) and
// what happens in goroutines of libraries still ends the process.
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

// Panic is a panic as an error.
type Panic struct {
	Value any    // what the function panicked with
	Where string // the calls that led there, the innermost first, on one line
}

func (p *Panic) Error() string { return fmt.Sprintf("panic: %v (in %s)", p.Value, p.Where) }

// Unwrap returns the value, if that is an error.
func (p *Panic) Unwrap() error {
	err, _ := p.Value.(error)
	return err
}

// Call runs a function; if it panics, that is its error.
func Call(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fault.New(fault.Internal, "%w", &Panic{value, callers()}).
				WithHint("this is a defect of pivot; report it with this message")
		}
	}()
	return f()
}

// maxCalls is how many calls a panic names.
const maxCalls = 8

// callers are the functions that were running when one of them panicked.
func callers() string {
	var counters [64]uintptr
	frames := runtime.CallersFrames(counters[:runtime.Callers(0, counters[:])])
	var calls []string
	for more, panicked := true, false; more && len(calls) < maxCalls; {
		var f runtime.Frame
		f, more = frames.Next()
		switch {
		case f.Function == "runtime.gopanic":
			panicked, calls = true, nil // of several, the first one
		case panicked && !strings.HasPrefix(f.Function, "runtime."):
			calls = append(calls, fmt.Sprintf("%s %s:%d", path.Base(f.Function), path.Base(f.File), f.Line))
		}
	}
	return strings.Join(calls, " < ")
}

// Start runs a function in a goroutine. The result gives its error, once.
func Start(f func() error) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- Call(f) }()
	return ended
}

// Group is goroutines that work on one thing. The first error ends the context of
// them all.
type Group struct{ group *errgroup.Group }

// NewGroup makes a group and the context that its functions shall obey.
func NewGroup(ctx context.Context) (*Group, context.Context) {
	group, ctx := errgroup.WithContext(ctx)
	return &Group{group}, ctx
}

// Limit bounds how many functions run at once; further ones make Start wait.
func (g *Group) Limit(n int) { g.group.SetLimit(n) }

// Start runs a function in a goroutine of the group.
func (g *Group) Start(f func() error) { g.group.Go(func() error { return Call(f) }) }

// Wait waits for all and returns the first error.
func (g *Group) Wait() error { return g.group.Wait() }
