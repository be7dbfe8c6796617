package main

import (
	"context"
	"testing"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
)

// TestBootLock: the programs of units that run early in each boot wait for each other, but not forever, and not when they
// are stopped.
func TestBootLock(t *testing.T) {
	h := host.New(t.TempDir())
	unlock, err := h.Lock()
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	run := func() error { ran++; return nil }
	ctx, stop := context.WithDeadline(t.Context(), time.Now())
	defer stop()
	if err := withBootLock(ctx, h, run); err == nil || ran > 0 {
		t.Errorf("stopped while it waited: %v, %d runs", err, ran)
	}
	if err := withLock(h, run); !fault.KindOf(err).Transient() || ran > 0 {
		t.Errorf("a command that is typed: %v, %d runs", err, ran)
	}
	if err := withFirstBootLock(t.Context(), h, run); !fault.KindOf(err).Transient() || ran > 0 {
		t.Errorf("a first boot that is typed: %v, %d runs", err, ran)
	}
	t.Setenv("INVOCATION_ID", "x")
	waited := make(chan error)
	go func() { waited <- withFirstBootLock(t.Context(), h, run) }()
	select {
	case err := <-waited:
		t.Errorf("it did not wait: %v", err)
	case <-time.After(time.Second / 2): // it tries twice in that time, or less often
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil || ran != 1 {
		t.Errorf("after the other's end: %v, %d runs", err, ran)
	}
}
