package status

import (
	"maps"
	"strconv"

	"github.com/coreos/go-systemd/v22/journal"
	"github.com/sirupsen/logrus"

	"machine-pivot/internal/fault"
	"machine-pivot/pivot"
)

// The journal fields. They are documented in docs/status.md and must stay compatible.
const (
	fieldMessageID = "MESSAGE_ID"
	fieldPhase     = "PIVOT_PHASE"
	fieldStep      = "PIVOT_STEP"
	fieldAttempt   = "PIVOT_ATTEMPT"
	fieldImage     = "PIVOT_IMAGE"
	fieldHint      = "PIVOT_HINT"
	fieldTransient = "PIVOT_TRANSIENT"
)

// messageID returns the MESSAGE_ID of an event for programs that read the journal, or "" for
// events that no program would wait for. The values never change.
func messageID(e pivot.Event) string {
	switch e.Kind {
	case pivot.EventBegan:
		return "2b68def496e64f3b9f03786aa647be3f"
	case pivot.EventWaiting:
		return "da8f62a29712404db0926b3903d3cb82"
	case pivot.EventFailing:
		if fault.KindOf(e.Err) == fault.Replace {
			return "fa60b4b4d0934732aa83955e0206d530"
		}
		return "396b7123bc044cbebf01c8fdc9ac3f14"
	case pivot.EventEntered:
		if e.Journal.Phase == pivot.PhaseFailed && e.Journal.Held() {
			return "7b0e4d2c91f84c5e9a63d8f50c1b27e4"
		}
		return map[pivot.Phase]string{
			pivot.PhaseApplying:  "ce0d682167d4417bb5e7510a96e7519f",
			pivot.PhaseCommitted: "2982393e9f684b7d87b2e122332ea270",
			pivot.PhaseTrial:     "d41cb8e5f9a74f0b8d3a6f1c2e7590ab",
			pivot.PhaseDone:      "eacf27a1ee9f4cd8b1422ddb80e7f2d7",
			pivot.PhaseFailed:    "423c6e0d81a54dc9bf8ab9145017461e",
			pivot.PhaseUndone:    "63603b4cec53436e91153a4ad6eef607",
		}[e.Journal.Phase]
	}
	return ""
}

// fields returns the fields of an event's journal entry, except the message.
func fields(e pivot.Event) logrus.Fields {
	f := logrus.Fields{}
	set := func(name, value string) {
		if value != "" {
			f[name] = value
		}
	}
	set(fieldMessageID, messageID(e))
	set(fieldPhase, string(e.Journal.Phase))
	set(fieldStep, string(e.Step))
	set(fieldImage, e.Journal.Target.Image.Reference().String())
	if e.Journal.Attempt > 0 {
		set(fieldAttempt, strconv.Itoa(e.Journal.Attempt))
	}
	if e.Err != nil {
		set(fieldHint, fault.HintOf(e.Err))
		set(fieldTransient, strconv.FormatBool(fault.KindOf(e.Err).Transient()))
	}
	return f
}

// Sink sends an entry to the journal, such as journal.Send.
type Sink func(message string, priority journal.Priority, fields map[string]string) error

// hook is a logrus hook that sends each line to the journal.
type hook struct{ send Sink }

// Levels implements logrus.Hook.
func (hook) Levels() []logrus.Level { return logrus.AllLevels }

// Fire implements logrus.Hook.
func (h hook) Fire(e *logrus.Entry) error {
	vars := map[string]string{"SYSLOG_IDENTIFIER": "pivot"}
	for name, value := range maps.All(e.Data) {
		if text, ok := value.(string); ok {
			vars[name] = text
		}
	}
	return h.send(text(e), priority(e.Level), vars)
}

func priority(level logrus.Level) journal.Priority {
	switch {
	case level <= logrus.ErrorLevel:
		return journal.PriErr
	case level == logrus.WarnLevel:
		return journal.PriWarning
	case level >= logrus.DebugLevel:
		return journal.PriDebug
	}
	return journal.PriInfo
}
