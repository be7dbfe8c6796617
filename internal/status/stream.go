package status

import (
	"cmp"
	"io"
	"time"

	"machine-pivot/internal/api"
	"machine-pivot/pivot"
)

// Stream writes events for a program that controls a run: one JSON document of kind Progress
// per line.
type Stream struct {
	W    io.Writer
	Lost func(error) // called once, when events can no longer be written
	Now  func() time.Time

	pace pace
	over bool
}

// progress is the JSON form of an event.
type progress struct {
	Time    time.Time   `json:"time"`
	Event   string      `json:"event"`
	Phase   pivot.Phase `json:"phase"`
	Step    pivot.Step  `json:"step"`
	Attempt int         `json:"attempt"`
	Message string      `json:"message"`
	*amount
	Error *pivot.Failure `json:"error,omitempty"`
}

// amount is the progress of a step.
type amount struct {
	Stage       pivot.Stage `json:"stage"`
	Bytes       int64       `json:"bytes"`
	TotalBytes  int64       `json:"totalBytes"`
	Layers      int         `json:"layers"`
	TotalLayers int         `json:"totalLayers"`
}

// nameOf returns the name of an event kind.
func nameOf(kind pivot.EventKind) string {
	return map[pivot.EventKind]string{
		pivot.EventBegan: "began", pivot.EventProgressed: "progressed", pivot.EventNoted: "noted",
		pivot.EventWaiting: "waiting", pivot.EventEntered: "entered", pivot.EventFailing: "failing",
	}[kind]
}

// Emit writes an event. If the reader is gone or too slow, Emit stops writing and the run
// continues.
func (s *Stream) Emit(e pivot.Event) {
	now := s.Now()
	if s.over || e.Kind == pivot.EventEnded || e.Kind == pivot.EventProgressed && !s.pace.due(now, e.Amount) {
		return
	}
	p := progress{
		Time: now.UTC(), Event: nameOf(e.Kind), Phase: cmp.Or(e.Journal.Phase, pivot.PhaseIdle), Step: e.Step, Attempt: e.Journal.Attempt, Message: e.Message,
	}
	if e.Kind == pivot.EventProgressed {
		p.amount = &amount{e.Amount.Stage, e.Amount.Done, e.Amount.Total, e.Amount.Layers, e.Amount.Of}
	}
	if e.Err != nil {
		p.Error = pivot.FailureOf(e.Err)
	}
	line, err := api.Marshal(api.Progress, p)
	if err == nil {
		_, err = s.W.Write(line)
	}
	if err != nil {
		s.over = true
		s.Lost(err)
	}
}
