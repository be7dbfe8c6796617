package pivot

import "machine-pivot/internal/pid1"

// Event reports the progress of a run: a step begins, advances, waits or fails.
type Event struct {
	Start   pid1.StartID // of the running system; "" if unknown
	Kind    EventKind
	Step    Step
	Message string         // for people; may be empty
	Amount  Amount         // for EventProgressed
	Err     error          // for EventWaiting and EventFailing
	Journal JournalContent // what the journal says at this time
	Command string         // the command of the run: Progress.Command
}

// Amount is the progress within a step.
type Amount struct {
	Stage  Stage // of the step
	Done   int64 // of Total, in bytes of compressed layers
	Total  int64 // 0 if unknown
	Layers int   // number of complete layers, of Of
	Of     int   // number of layers; 0 if unknown
}

// Percent returns the progress in percent; 0 if it is unknown.
func (a Amount) Percent() int {
	if a.Total <= 0 {
		return 0
	}
	return int(100 * a.Done / a.Total)
}

// Stage names a part of a step; the names are stable.
type Stage string

// The stages of a pull.
const (
	Fetching Stage = "fetching" // fetching layers and writing their objects
	Writing  Stage = "writing"  // writing the merged tree and syncing the disk
)

// EventKind is the kind of an Event.
type EventKind int

const (
	EventBegan      EventKind = iota // Step begins; the step before it has ended
	EventProgressed                  // Step advances
	EventNoted                       // a message
	EventWaiting                     // a transient error; Message says how long the step waits
	EventEntered                     // the phase has changed; it is journaled unless Announce says otherwise
	EventFailing                     // the run ends with Err
	EventEnded                       // the run ends; Err, if any, was reported already
)

// Emit receives events. It is called in order, by one goroutine at a time.
type Emit func(Event)
