package day2

import (
	"context"
	"errors"
	"fmt"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/window"
	"machine-pivot/pivot"
)

// Move is a change of the machine whose longest part can be done in advance.
type Move interface {
	Plan(ctx context.Context, prepared Prepared) (pivot.Plan, error)
	Download(ctx context.Context) (Downloaded, error)
	Run(ctx context.Context, prepared Prepared) (changed bool, err error)
}

// errWindowClosed is the error of a run whose window closed before it changed the machine.
var errWindowClosed = errors.New("the window closed before that")

// InWindow makes a move within the machine's window. It downloads everything first, unless
// downloaded says that this was done; until the window opens neither the running system nor the
// next boot changes. locked runs a step while no other pivot runs; it is not called for the wait.
// If the window closes too early, InWindow waits for the next one. It reports whether anything
// had to change.
func InWindow(ctx context.Context, m *machine.Machine, move Move, downloaded bool, locked func(func() error) error) (changed bool, err error) {
	prepared := Prepared{Downloaded: downloaded}
	run := func() (err error) {
		changed, err = move.Run(ctx, prepared)
		return err
	}
	settings, err := m.Settings()
	if err != nil || settings.Window == "" { // the run reports settings that cannot be read
		err = locked(run)
		return changed, err
	}
	w, err := window.Parse(settings.Window, time.Local)
	if err != nil {
		return false, fault.New(fault.Usage, "cannot use the window: %w", err)
	}
	prepared.Window = &w
	if !downloaded {
		err := locked(func() error {
			d, err := move.Download(ctx)
			prepared.Unchanged, prepared.Downloaded = !d.Changed, d.Kept
			return err
		})
		if err != nil {
			return false, err
		}
	}
	for {
		if !prepared.Unchanged {
			if prepared.Until, err = awaitWindow(ctx, m, w, prepared.Until); err != nil {
				return false, explainStop(ctx, m, err)
			}
		}
		if err = locked(run); !errors.Is(err, errWindowClosed) {
			return changed, err
		}
		prepared.Unchanged = false
	}
}

// awaitWindow waits until the window opens, and returns when it closes. last is the end of the
// window that was too short; zero: there was none. It only says whether the open window is that one: if
// the clock is set back, it may be far ahead. awaitWindow looks at the wall clock at least every
// minute, because the clock may be set, or the machine suspended, meanwhile.
func awaitWindow(ctx context.Context, m *machine.Machine, w window.Window, last time.Time) (closes time.Time, err error) {
	for said := (time.Time{}); ; {
		now := m.Progress.Now()
		opens, closes := w.Next(now)
		switch {
		case opens.After(now):
			last = time.Time{} // it is over
		case closes.Equal(last):
			opens, closes = w.Next(last)
		}
		if !opens.After(now) {
			return closes, nil
		}
		if !opens.Equal(said) {
			said = opens
			m.Progress.Begin(pivot.StepWait, fmt.Sprintf("waiting for the window %s, which opens at %s; until then neither the running system nor the next boot changes",
				w, opens.Format("Mon 2006-01-02 15:04 MST")))
		}
		if err := m.Retry.Pause(ctx, min(opens.Sub(now), time.Minute)); err != nil {
			return closes, err
		}
	}
}

// windowClosed wraps the error of a wait in errWindowClosed, if the end of the window ended the
// wait. Otherwise it returns the error as it is.
func (t Prepared) windowClosed(ctx context.Context, err error) error {
	if t.Window == nil || ctx.Err() != nil || !fault.KindOf(err).Transient() {
		return err
	}
	return fault.New(fault.Unavailable, "%w: %w", errWindowClosed, err)
}
