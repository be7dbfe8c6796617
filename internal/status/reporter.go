package status

import (
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/printable"
	"machine-pivot/pivot"
)

// Reporter reports events to people and programs.
type Reporter struct {
	Root   string              // root directory of the host, for /run/pivot/status.json
	Log    *logrus.Logger      // one line per event, except progress
	Notify func(status string) // systemd's STATUS=
	Now    func() time.Time
	// Consoles makes failures appear on every console of the machine. It is set if a failure
	// holds the boot.
	Consoles bool
	// Metrics is a Prometheus textfile of the journal, written when a phase is entered, a try
	// fails or the run ends; "": none.
	Metrics string

	pace     pace
	transfer Transfer
}

// Emit reports an event. An error in writing the status is logged and otherwise ignored.
func (r *Reporter) Emit(e pivot.Event) {
	now := r.Now()
	if e.Kind == pivot.EventProgressed && !r.pace.due(now, e.Amount) {
		return
	}
	s := Of(e)
	if e.Kind == pivot.EventEnded {
		r.keep(s, e)
		return
	}
	r.Notify(printable.Line(r.sentence(now, e))) // in sd_notify(3), a line feed would start another assignment
	r.line(e)
	r.keep(s, e)
	if e.Kind == pivot.EventFailing && r.Consoles {
		if err := showOnConsoles(r.Root, e.Err); err != nil {
			r.Log.WithError(err).Warn("not every console shows the failure")
		}
	}
}

// keep writes the files that tell of the run.
func (r *Reporter) keep(s Status, e pivot.Event) {
	if err := s.Write(r.Root); err != nil && e.Kind != pivot.EventProgressed {
		r.Log.WithError(err).Warn("the status is not kept")
	}
	switch e.Kind {
	case pivot.EventFailing: // the metrics have the failure of the last run, whatever the phase is
		e.Journal.Error = s.Error
	case pivot.EventEntered, pivot.EventWaiting, pivot.EventEnded:
	default:
		return
	}
	if err := keepMetrics(r.Metrics, Metrics(e.Journal)); err != nil {
		r.Log.WithError(err).Warn("the metrics are not kept")
	}
}

// sentence returns the line for systemctl status.
func (r *Reporter) sentence(now time.Time, e pivot.Event) string {
	switch e.Kind {
	case pivot.EventProgressed:
		return fmt.Sprintf("%s: %s", e.Step, r.transfer.Text(now, e.Amount))
	case pivot.EventWaiting:
		return fmt.Sprintf("%s: %s: %v", e.Step, e.Message, e.Err)
	case pivot.EventFailing:
		return fmt.Sprintf("failed: %v", e.Err)
	case pivot.EventEntered:
		return fmt.Sprintf("%s (attempt %d)", e.Journal.Phase, e.Journal.Attempt)
	}
	return e.Message
}

func (r *Reporter) line(e pivot.Event) {
	log := r.Log.WithFields(fields(e))
	switch e.Kind {
	case pivot.EventWaiting:
		log.Warnf("%s: %v", e.Message, e.Err)
	case pivot.EventFailing:
		log.Error(e.Err)
		if hint := fault.HintOf(e.Err); hint != "" {
			delete(log.Data, fieldMessageID) // only the first entry has the ID
			log.Info(hintPrefix + hint)
		}
	case pivot.EventEntered:
		log.Infof("phase %s, attempt %d", e.Journal.Phase, e.Journal.Attempt)
		if e.Journal.Phase == pivot.PhaseDone {
			delete(log.Data, fieldMessageID) // only the first entry has the ID
			log.Info(summary(e.Journal))
		}
	case pivot.EventBegan, pivot.EventNoted:
		log.Info(e.Message)
	}
}

// summary returns how long the phases of a finished transaction took.
func summary(r pivot.JournalContent) string {
	text := "took"
	for _, p := range r.Phases {
		text += fmt.Sprintf(" %s %.1fs", p.Name, p.Seconds)
	}
	return text
}
