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

// Move is a change of the machine of which the longest part can be done before.
type Move interface {
	Download(ctx context.Context) (Downloaded, error)
	Run(ctx context.Context) (changed bool, err error)
}

// errWindowClosed says that the window closed before the machine was changed.
var errWindowClosed = errors.New("the window closed before that")

// InWindow makes a move of the machine within its window: all is downloaded before, and until the
// window opens neither the running system nor the next boot changes. alone runs a part while
// no other pivot is at work; the wait is none. A window that closes too early is followed by
// the next one. It reports whether anything had to change.
func (m *Machine) InWindow(ctx context.Context, move Move, alone func(func() error) error) (changed bool, err error) {
	times, err := m.times()
	run := func() (err error) {
		changed, err = move.Run(ctx)
		return err
	}
	if err != nil || times == nil { // settings that cannot be read are the run's to tell
		err = alone(run)
		return changed, err
	}
	waits := true
	if !m.FromDownloaded {
		err := alone(func() error {
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
			if err := m.awaitWindow(ctx, *times); err != nil {
				return false, m.stopped(ctx, err)
			}
		}
		if err = alone(run); !errors.Is(err, errWindowClosed) {
			return changed, err
		}
	}
}

// times is when the machine may be changed; nil: at any time.
func (m *Machine) times() (*window.Window, error) {
	settings, err := m.settings()
	if err != nil || settings.Window == "" {
		return nil, err
	}
	w, err := window.Parse(settings.Window, time.Local)
	if err != nil {
		return nil, fault.New(fault.Usage, "cannot use the window: %w", err)
	}
	return &w, nil
}

// awaitWindow waits until the window is open, by the wall clock: it may be set meanwhile, and the
// machine may sleep. After a span that was not enough it is the next one.
func (m *Machine) awaitWindow(ctx context.Context, w window.Window) error {
	for said := false; ; said = true {
		now := m.Progress.Now()
		opens, closes := w.Next(latest(now, m.closes))
		if !opens.After(now) {
			m.closes = closes
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

// stillOpen is an error if the window that was waited for has closed.
func (m *Machine) stillOpen() error {
	if m.closes.IsZero() || m.Progress.Now().Before(m.closes) {
		return nil
	}
	return fault.New(fault.Unavailable, "cannot change this machine: %w", errWindowClosed)
}

// inTime is the error of a wait that the window's end has ended, if that is the reason.
func (m *Machine) inTime(ctx context.Context, err error) error {
	if m.closes.IsZero() || ctx.Err() != nil || !fault.KindOf(err).Transient() {
		return err
	}
	return fault.New(fault.Unavailable, "%w: %w", errWindowClosed, err)
}
