package status

import (
	"time"

	"github.com/sirupsen/logrus"

	"machine-pivot/pivot"
)

// Display shows people how a step goes: on a terminal in its last line, elsewhere by a
// line in the log now and then.
type Display struct {
	Screen *Screen // nil: there is no terminal
	Log    *logrus.Logger
	Now    func() time.Time

	transfer Transfer
	pace     pace        // of the terminal's line
	began    time.Time   // when the step did
	said     time.Time   // when the last line was logged, or the step began
	percent  int         // that it said
	stage    pivot.Stage // that was seen last
}

// Lines in the log are at least this far apart, in time and in percent.
const (
	sayEvery        = 10 * time.Second
	sayEveryPercent = 10
)

// Emit shows an event of kind Progressed, and ends the terminal's line at any other.
func (d *Display) Emit(e pivot.Event) {
	switch e.Kind {
	case pivot.EventProgressed:
		d.show(e)
	case pivot.EventBegan:
		d.transfer, d.stage, d.began, d.percent = Transfer{}, "", d.Now(), 0
		d.said = d.began
		d.end()
	default:
		d.end()
	}
}

func (d *Display) end() {
	if d.Screen != nil {
		d.Screen.End()
	}
}

func (d *Display) show(e pivot.Event) {
	now, a := d.Now(), e.Amount
	if d.Screen == nil {
		text := d.transfer.Text(now, a)
		if d.due(now, a) {
			d.said, d.percent = now, a.Percent()
			d.Log.WithFields(fields(e)).Info(text)
		}
		return
	}
	if !d.pace.due(now, a) {
		return
	}
	parts, percent := d.transfer.fields(now, a), a.Percent()
	if a.Total <= 0 || a.Stage == pivot.Writing {
		percent = -1
	}
	d.Screen.Show(func(width int) string { return fitted(width, string(e.Step), percent, parts) })
}

// due reports whether it is time for another line. What was slow to fetch is slow to
// write, during which nothing more comes: that gets a line of its own.
func (d *Display) due(now time.Time, a pivot.Amount) bool {
	written := a.Stage == pivot.Writing && d.stage != pivot.Writing
	d.stage = a.Stage
	if written && now.Sub(d.began) >= sayEvery {
		return true
	}
	return now.Sub(d.said) >= sayEvery && (a.Total <= 0 || a.Percent()-d.percent >= sayEveryPercent)
}

// Tee is all of these, one after the other.
func Tee(emits ...pivot.Emit) pivot.Emit {
	return func(e pivot.Event) {
		for _, emit := range emits {
			emit(e)
		}
	}
}
