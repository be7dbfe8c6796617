// Package maintenance is the feature that changes a machine only in its maintenance window. Package window has the times.
package maintenance

import (
	"context"
	"fmt"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/window"
	"machine-pivot/pivot"
)

// Feature returns the maintenance window.
func Feature() machine.Feature { return machine.Feature{Of: of} }

// feature is the window of a machine for one command.
type feature struct {
	pivot.NoFeature
	m      *machine.Machine
	window *window.Window // nil: there is none
	until  time.Time      // the end of the open window; zero if it was not waited for
}

func of(m *machine.Machine) pivot.Feature { return &feature{m: m} }

// Name implements pivot.Feature.
func (*feature) Name() string { return "window" }

// Demand implements pivot.Feature: all of a command waits for the window.
func (f *feature) Demand(plan *pivot.Plan) (pivot.Demand, error) {
	if plan == nil && f.window != nil {
		return pivot.DemandWait, nil
	}
	return pivot.DemandNone, nil
}

// Before implements pivot.Feature.
func (f *feature) Before(ctx context.Context, step pivot.Step, plan *pivot.Plan) error {
	switch {
	case step == pivot.StepRead && plan == nil:
		return f.read()
	case f.window == nil:
	case step == pivot.StepWait && plan == nil:
		return f.await(ctx)
	case step == pivot.StepWait:
		*plan = plan.Until(f.until, closed())
	case step == pivot.StepReady:
		return f.stillOpen()
	}
	return nil
}

func closed() error { return pivot.Again{Why: "the window closed before that"} }

// read reads the settings. The command reports those that cannot be read.
func (f *feature) read() error {
	settings, err := f.m.Settings()
	if err != nil || settings.Window == "" {
		return nil
	}
	w, err := window.Parse(settings.Window, time.Local)
	if err != nil {
		return fault.New(fault.Usage, "cannot use the window: %w", err)
	}
	f.window = &w
	return nil
}

// stillOpen returns an error if the window has closed, or if it is not open because the clock was set.
func (f *feature) stillOpen() error {
	now := f.m.Progress.Now()
	if opens, _ := f.window.Next(now); !opens.After(now) && now.Before(f.until) {
		return nil
	}
	return fault.New(fault.Unavailable, "cannot change this machine: %w", closed())
}

// await waits until the window opens, and sets until. Before that, until is the end of the window that was too short, if
// there was one. It only says whether the open window is that one: if the clock is set back, it may be far ahead. await
// looks at the wall clock at least every minute, because the clock may be set, or the machine suspended, meanwhile.
func (f *feature) await(ctx context.Context) error {
	w, last := f.window, f.until
	for said := (time.Time{}); ; {
		now := f.m.Progress.Now()
		opens, closes := w.Next(now)
		switch {
		case opens.After(now):
			last = time.Time{} // it is over
		case closes.Equal(last):
			opens, closes = w.Next(last)
		}
		if !opens.After(now) {
			f.until = closes
			return nil
		}
		if !opens.Equal(said) {
			said = opens
			f.m.Progress.Begin(pivot.StepWait, fmt.Sprintf("waiting for the window %s, which opens at %s; until then neither the running system nor the next boot changes",
				w, opens.Format("Mon 2006-01-02 15:04 MST")))
		}
		if err := f.m.Retry.Pause(ctx, min(opens.Sub(now), time.Minute)); err != nil {
			return err
		}
	}
}
