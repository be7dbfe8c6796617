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

	pace     pace
	transfer Transfer
}

// Emit shows one event. A status that cannot be written is said once in the log
// and stops nothing.
func (r *Reporter) Emit(e pivot.Event) {
	now := r.Now()
	if e.Kind == pivot.Progressed && !r.pace.due(now, e.Amount) {
		return
	}
	s := Of(e)
	r.Notify(printable.Line(r.sentence(now, e))) // in systemd's protocol another line would be another message
	r.line(e)
	if err := s.Write(r.Root); err != nil && e.Kind != pivot.Progressed {
		r.Log.WithError(err).Warn("the status is not kept")
	}
	if e.Kind == pivot.Failing && r.Consoles {
		if err := tellConsoles(r.Root, e.Err); err != nil {
			r.Log.WithError(err).Warn("not every console shows the failure")
		}
	}
}

// sentence is the one line that systemctl status shows.
func (r *Reporter) sentence(now time.Time, e pivot.Event) string {
	switch e.Kind {
	case pivot.Progressed:
		return fmt.Sprintf("%s: %s", e.Step, r.transfer.Text(now, e.Amount))
	case pivot.Waiting:
		return fmt.Sprintf("%s: %s: %v", e.Step, e.Message, e.Err)
	case pivot.Failing:
		return fmt.Sprintf("failed: %v", e.Err)
	case pivot.Entered:
		return fmt.Sprintf("%s (attempt %d)", e.Record.Phase, e.Record.Attempt)
	}
	return e.Message
}

func (r *Reporter) line(e pivot.Event) {
	log := r.Log.WithFields(fields(e))
	switch e.Kind {
	case pivot.Waiting:
		log.Warnf("%s: %v", e.Message, e.Err)
	case pivot.Failing:
		log.Error(e.Err)
		if hint := fault.HintOf(e.Err); hint != "" {
			delete(log.Data, fieldMessageID) // that entry is told
			log.Info("hint: " + hint)
		}
	case pivot.Entered:
		log.Infof("phase %s, attempt %d", e.Record.Phase, e.Record.Attempt)
		if e.Record.Phase == pivot.Done {
			delete(log.Data, fieldMessageID) // that entry is told
			log.Info(summary(e.Record))
		}
	case pivot.Began, pivot.Noted:
		log.Info(e.Message)
	}
}

// summary says where the time of a finished transaction went.
func summary(r pivot.Record) string {
	text := "took"
	for _, p := range r.Phases {
		text += fmt.Sprintf(" %s %.1fs", p.Name, p.Seconds)
	}
	return text
}
