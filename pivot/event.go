package pivot

// Event is something worth telling: a step begins, moves on, waits or ends.
type Event struct {
	Kind    EventKind
	Step    Step
	Message string // a sentence for people; may be empty
	Amount  Amount // for EventProgressed
	Err     error  // for EventWaiting and EventFailing
	Record  Record // the account so far
}

// Amount is how far a step is.
type Amount struct {
	Stage  Stage // of the step
	Done   int64 // of Total, in bytes of compressed layers
	Total  int64 // 0 if not known
	Layers int   // whole layers, of Of
	Of     int   // 0 if not known
}

// Percent is how much of it is done; 0 if that is not known.
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
	Fetching Stage = "fetching" // layers, whose objects are written as they come
	Writing  Stage = "writing"  // what the layers make together, and syncing the disk
)

// EventKind tells what an Event says.
type EventKind int

const (
	EventBegan      EventKind = iota // Step begins; the step before it is over
	EventProgressed                  // Step moves on
	EventNoted                       // something to know
	EventWaiting                     // a transient error; Message says until when
	EventEntered                     // the phase changed and the journal holds it
	EventFailing                     // the run ends with Err
)

// Step names a step of the transaction; the names are stable.
type Step string

const (
	StepRead      Step = "read"      // read and validate what is asked for
	StepObserve   Step = "observe"   // look at the host
	StepPreflight Step = "preflight" // check what can be known to fail, before any write
	StepPull      Step = "pull"      // fetch the image and import its commit
	StepWait      Step = "wait"      // for the time, or the leave, to change the machine
	StepPrepare   Step = "prepare"   // make the deployment
	StepCommit    Step = "commit"    // the one atomic step
	StepReboot    Step = "reboot"
	StepProve     Step = "prove" // compare what runs with what was asked for
)

// Emit takes events, in order, from one goroutine at a time.
type Emit func(Event)
