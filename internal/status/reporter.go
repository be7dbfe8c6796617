package status

import (
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/printable"
	"machine-pivot/pivot"
)

// Reporter turns events into what people and programs see.
type Reporter struct {
	Root   string              // of the host, for /run/pivot/status.json
	Log    *logrus.Logger      // one line per event; progress is not a line
	Notify func(status string) // systemd's STATUS=
	Now    func() time.Time
	// Consoles shows a failure on every console of the machine: set where the
	// machine is held by it.
	Consoles bool
	// Metrics is a file that has the record for Prometheus, written when a phase is
	// entered, a try fails or the run ends; "": none.
	Metrics string

	pace     pace
	transfer Transfer
}

// Emit shows an event. If the status cannot be written, that is logged and nothing fails.
func (r *Reporter) Emit(e pivot.Event) {
	now := r.Now()
	if e.Kind == pivot.EventProgressed && !r.pace.due(now, e.Amount) {
		return
	}
	s := Of(e)
	r.Notify(printable.Line(r.sentence(now, e))) // in systemd's protocol another line would be another message
	r.line(e)
	if err := s.Write(r.Root); err != nil && e.Kind != pivot.EventProgressed {
		r.Log.WithError(err).Warn("the status is not kept")
	}
	if e.Kind == pivot.EventEntered || e.Kind == pivot.EventWaiting || e.Kind == pivot.EventFailing {
		if err := keepMetrics(r.Metrics, Metrics(e.Record)); err != nil {
			r.Log.WithError(err).Warn("the metrics are not kept")
		}
	}
	if e.Kind == pivot.EventFailing && r.Consoles {
		if err := showOnConsoles(r.Root, e.Err); err != nil {
			r.Log.WithError(err).Warn("not every console shows the failure")
		}
	}
}

// sentence is the line that systemctl status shows.
func (r *Reporter) sentence(now time.Time, e pivot.Event) string {
	switch e.Kind {
	case pivot.EventProgressed:
		return fmt.Sprintf("%s: %s", e.Step, r.transfer.Text(now, e.Amount))
	case pivot.EventWaiting:
		return fmt.Sprintf("%s: %s: %v", e.Step, e.Message, e.Err)
	case pivot.EventFailing:
		return fmt.Sprintf("failed: %v", e.Err)
	case pivot.EventEntered:
		return fmt.Sprintf("%s (attempt %d)", e.Record.Phase, e.Record.Attempt)
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
			delete(log.Data, fieldMessageID) // the entry before has it
			log.Info("hint: " + hint)
		}
	case pivot.EventEntered:
		log.Infof("phase %s, attempt %d", e.Record.Phase, e.Record.Attempt)
		if e.Record.Phase == pivot.PhaseDone {
			delete(log.Data, fieldMessageID) // the entry before has it
			log.Info(summary(e.Record))
		}
	case pivot.EventBegan, pivot.EventNoted:
		log.Info(e.Message)
	}
}

// summary is how long the phases of a finished transaction took.
func summary(r pivot.Record) string {
	text := "took"
	for _, p := range r.Phases {
		text += fmt.Sprintf(" %s %.1fs", p.Name, p.Seconds)
	}
	return text
}
