package day2

import (
	"context"
	"time"

	"machine-pivot/day2/trial"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/retry"
	"machine-pivot/pivot"
)

// conductor returns the Conductor of trials on this machine.
func conductor(m *machine.Machine) *trial.Conductor {
	return &trial.Conductor{
		Host: m.Host, Progress: m.Progress, Differences: m.Failures, Reboot: m.RebootBy,
		ClosedFirstBoot: func() (hostfiles.Digest, error) { return machine.ClosedFirstBoot(m.Host.Root) },
	}
}

// locked runs a step of a trial under the machine's lock, with the journal open. It calls wait
// between two tries to take the lock.
func locked(ctx context.Context, m *machine.Machine, wait func(context.Context) error, step func() error) error {
	return m.Host.WithLock(ctx, wait, func() error {
		if err := m.OpenToWrite(ctx); err != nil {
			return err
		}
		return step()
	})
}

// Trial conducts the trial of the running system, or closes one that is over. It is the program
// of pivot-trial.service.
type Trial struct {
	*machine.Machine
	// Sleep waits between two checks; nil: retry.Sleep.
	Sleep func(ctx context.Context, d time.Duration) error
}

// Run returns when nothing is on trial any more, or ends with a reboot: see
// trial.Conductor.
func (t *Trial) Run(ctx context.Context) error {
	alone := func(step func() error) error { return locked(ctx, t.Machine, t.wait, step) }
	err := conductor(t.Machine).Conduct(ctx, alone, t.wait)
	t.TellBootc()
	failed := t.Progress.Content.Phase == pivot.PhaseFailed
	switch {
	case err == nil:
		t.Progress.End(nil)
	case ctx.Err() != nil:
		note := "stopped: the old system stays the default, and pivot confirm can still keep this one"
		if failed {
			note = "stopped: the next boot goes on with what is left of the trial that has failed"
		}
		t.Progress.Note(note)
		t.Progress.End(nil)
		return nil
	case failed:
		t.Progress.Note(err.Error()) // the journal keeps the reason why the trial failed
		t.Progress.Over(err)
	default:
		t.Progress.Fail(err)
	}
	return err
}

func (t *Trial) wait(ctx context.Context) error {
	if t.Sleep != nil {
		return t.Sleep(ctx, trial.Look)
	}
	return retry.Sleep(ctx, trial.Look)
}

// Confirm keeps a system that is on trial.
type Confirm struct{ *machine.Machine }

// Run makes the running system the default permanently, if it has proven itself.
func (c *Confirm) Run(ctx context.Context) error {
	// The trial's unit takes the lock from time to time.
	wait := func(ctx context.Context) error { return retry.Sleep(ctx, time.Second) }
	err := locked(ctx, c.Machine, wait, func() error { return conductor(c.Machine).Confirm(ctx) })
	c.TellBootc()
	c.Progress.End(err)
	return err
}
