// Package testenv is where a world runs: in a test, or in a program that shows what tests prove.
package testenv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
)

// T is what a world needs from whoever it plays for. A *testing.T is one.
type T interface {
	Helper()
	Context() context.Context // cancelled before the functions of Cleanup run
	Cleanup(func())
	TempDir() string // a new directory, which is removed at the end
	Output() io.Writer
	Logf(format string, args ...any)
	Error(args ...any)
	Errorf(format string, args ...any)
	Failed() bool
	Fatal(args ...any) // ends the play, like Fatalf
	Fatalf(format string, args ...any)
}

// Play plays outside of a test, and returns what has failed. log receives what a test would log. A play that ends
// because ctx is cancelled was stopped, and has not failed.
func Play(ctx context.Context, log io.Writer, play func(T)) error {
	p := &player{log: log, whole: ctx}
	var cancel context.CancelFunc
	p.ctx, cancel = context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { // of its own, because Fatal ends it
		defer close(ended)
		defer p.cleanUp()
		defer cancel()
		play(p)
	}()
	<-ended
	if ctx.Err() != nil {
		return errors.New("stopped")
	}
	return errors.Join(p.failures...)
}

type player struct {
	whole context.Context // which whoever wants the play can cancel
	ctx   context.Context // which ends with the play, too
	log   io.Writer

	mu       sync.Mutex
	cleanups []func()
	failures []error
}

// cleanUp runs the functions of Cleanup, the last one first, also if one of them ends the play.
func (p *player) cleanUp() {
	p.mu.Lock()
	n := len(p.cleanups)
	if n == 0 {
		p.mu.Unlock()
		return
	}
	last := p.cleanups[n-1]
	p.cleanups = p.cleanups[:n-1]
	p.mu.Unlock()
	defer p.cleanUp()
	last()
}

// Helper implements T.
func (p *player) Helper() {}

// Context implements T.
func (p *player) Context() context.Context { return p.ctx }

// Output implements T.
func (p *player) Output() io.Writer { return p.log }

// Cleanup implements T.
func (p *player) Cleanup(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cleanups = append(p.cleanups, f)
}

// TempDir implements T.
func (p *player) TempDir() string {
	dir, err := os.MkdirTemp("", "play-*")
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			p.Error(err)
		}
	})
	return dir
}

// Logf implements T.
func (p *player) Logf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.log, format+"\n", args...)
}

// Error implements T.
func (p *player) Error(args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failures = append(p.failures, errors.New(strings.TrimSuffix(fmt.Sprintln(args...), "\n")))
}

// Errorf implements T.
func (p *player) Errorf(format string, args ...any) { p.Error(fmt.Sprintf(format, args...)) }

// Failed implements T.
func (p *player) Failed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.whole.Err() == nil && len(p.failures) > 0
}

// Fatal implements T.
func (p *player) Fatal(args ...any) {
	p.Error(args...)
	runtime.Goexit()
}

// Fatalf implements T.
func (p *player) Fatalf(format string, args ...any) { p.Fatal(fmt.Sprintf(format, args...)) }
