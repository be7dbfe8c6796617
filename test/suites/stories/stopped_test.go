package stories_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"machine-pivot/firstboot"
	"machine-pivot/internal/fault"
	"machine-pivot/pivot"
	"machine-pivot/test/worlds/hostdir"
)

// stopAt runs the first boot and stops it when a step begins.
func stopAt(t *testing.T, h *hostdir.Host, step pivot.Step) error {
	t.Helper()
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	b := firstboot.FirstBoot{Machine: newMachine(t, h), File: firstboot.EncapsulatedPath}
	b.Machine.Progress.Emit = func(e pivot.Event) {
		if e.Kind == pivot.EventBegan && e.Step == step {
			stop(errors.New("terminated"))
		}
	}
	return b.Run(ctx)
}

// TestStopSaysWhatBootsNext: a command that is stopped says what the next boot starts, by the boot entries and not by
// the journal, which may be of an earlier run.
func TestStopSaysWhatBootsNext(t *testing.T) {
	h := newHost(t)
	expect := func(step pivot.Step, message, hint string) {
		t.Helper()
		err := stopAt(t, h, step)
		if err == nil || !strings.Contains(err.Error(), message) || !strings.Contains(fault.HintOf(err), hint) {
			t.Errorf("at %s: %v, hint %q; want %q, %q", step, err, fault.HintOf(err), message, hint)
		}
	}
	expect(pivot.StepPull, "stopped before the commit", "the next boot is the running system, unchanged")
	if err := run(t, h, firstboot.FirstBoot{NoReboot: true}); err != nil {
		t.Fatal(err)
	}
	expect(pivot.StepObserve, "stopped after the commit", "the next boot starts it")
	if err := h.Undeploy(0); err != nil { // somebody takes the commit back
		t.Fatal(err)
	}
	state, err := h.Systems()
	if err != nil {
		t.Fatal(err)
	}
	expect(pivot.StepObserve, "stopped after the commit", "the next boot starts the running system, deployment "+state.Booted.ID())
}
