package status

import (
	"time"

	"github.com/sirupsen/logrus"

	"machine-pivot/pivot"
)

// Display shows the progress of a step to people: in the last line of a terminal, or without a
// terminal as occasional lines in the log.
type Display struct {
	Screen *Screen // nil: no terminal
	Log    *logrus.Logger
	Now    func() time.Time

	transfer Transfer
	pace     pace        // of the line on the terminal
	began    time.Time   // start of the step
	logged   time.Time   // time of the last log line, or start of the step
	percent  int         // percentage in the last log line
	stage    pivot.Stage // stage of the last event
}

// Minimum distance of log lines, in time and in percent.
const (
	logEvery        = 10 * time.Second
	logEveryPercent = 10
)

// Emit shows an event of kind Progressed. Any other event removes the line from the terminal.
func (d *Display) Emit(e pivot.Event) {
	switch e.Kind {
	case pivot.EventProgressed:
		d.show(e)
	case pivot.EventBegan:
		d.transfer, d.stage, d.began, d.percent = Transfer{}, "", d.Now(), 0
		d.logged = d.began
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
			d.logged, d.percent = now, a.Percent()
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

// due reports whether to log another line. A slow download is usually followed by slow writing
// without further progress, so the start of writing is logged, too.
func (d *Display) due(now time.Time, a pivot.Amount) bool {
	written := a.Stage == pivot.Writing && d.stage != pivot.Writing
	d.stage = a.Stage
	if written && now.Sub(d.began) >= logEvery {
		return true
	}
	return now.Sub(d.logged) >= logEvery && (a.Total <= 0 || a.Percent()-d.percent >= logEveryPercent)
}

// Tee returns an Emit that calls each of emits in order.
func Tee(emits ...pivot.Emit) pivot.Emit {
	return func(e pivot.Event) {
		for _, emit := range emits {
			emit(e)
		}
	}
}
