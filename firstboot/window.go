package firstboot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/window"
	"machine-pivot/pivot"
)

// Move is a change of the machine whose longest part can be done in advance.
type Move interface {
	Download(ctx context.Context) (Downloaded, error)
	Run(ctx context.Context) (changed bool, err error)
}

// errWindowClosed is the error of a run whose window closed before it changed the machine.
var errWindowClosed = errors.New("the window closed before that")

// InWindow makes a move within the machine's window. It downloads everything first; until the
// window opens neither the running system nor the next boot changes. locked runs a step while
// no other pivot runs; it is not called for the wait. If the window closes too early, InWindow
// waits for the next one. It reports whether anything had to change.
func (m *Machine) InWindow(ctx context.Context, move Move, locked func(func() error) error) (changed bool, err error) {
	run := func() (err error) {
		changed, err = move.Run(ctx)
		return err
	}
	settings, err := m.settings()
	if err != nil || settings.Window == "" { // the run reports settings that cannot be read
		err = locked(run)
		return changed, err
	}
	w, err := window.Parse(settings.Window, time.Local)
	if err != nil {
		return false, fault.New(fault.Usage, "cannot use the window: %w", err)
	}
	waits := true
	if !m.FromDownloaded {
		err := locked(func() error {
			d, err := move.Download(ctx)
			waits, m.FromDownloaded = d.Changed, d.Kept
			return err
		})
		if err != nil {
			return false, err
		}
	}
	for {
		if waits {
			if err := m.awaitWindow(ctx, w); err != nil {
				return false, m.explainStop(ctx, err)
			}
		}
		if err = locked(run); !errors.Is(err, errWindowClosed) {
			return changed, err
		}
	}
}

// awaitWindow waits until the window opens. It looks at the wall clock at least every minute,
// because the clock may be set, or the machine suspended, meanwhile. If a window was too short,
// it waits for the one after.
func (m *Machine) awaitWindow(ctx context.Context, w window.Window) error {
	for said := false; ; said = true {
		now := m.Progress.Now()
		opens, closes := w.Next(latest(now, m.windowEnd))
		if !opens.After(now) {
			m.windowEnd = closes
			return nil
		}
		if !said {
			m.Progress.Begin(pivot.StepWait, fmt.Sprintf("waiting for the window %s, which opens at %s; until then neither the running system nor the next boot changes",
				w, opens.Format("Mon 2006-01-02 15:04 MST")))
		}
		if err := m.Retry.Pause(ctx, min(opens.Sub(now), time.Minute)); err != nil {
			return err
		}
	}
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// checkWindow returns an error if the window that was waited for has closed.
func (m *Machine) checkWindow() error {
	if m.windowEnd.IsZero() || m.Progress.Now().Before(m.windowEnd) {
		return nil
	}
	return fault.New(fault.Unavailable, "cannot change this machine: %w", errWindowClosed)
}

// asWindowClosed wraps the error of a wait in errWindowClosed, if the end of the window ended the
// wait. Otherwise it returns the error as it is.
func (m *Machine) asWindowClosed(ctx context.Context, err error) error {
	if m.windowEnd.IsZero() || ctx.Err() != nil || !fault.KindOf(err).Transient() {
		return err
	}
	return fault.New(fault.Unavailable, "%w: %w", errWindowClosed, err)
}
