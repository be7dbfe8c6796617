package pivot

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/retry"
)

// Progress tracks a run: it keeps the journal and emits events, each with the current record.
type Progress struct {
	Journal Journal
	Record  Record
	Emit    Emit
	Now     func() time.Time
	BootID  string // of this boot; "" if unknown
	Boot    Boot   // this boot's times; its ID is "" if they are unknown

	step    Step
	since   time.Time
	running Duration   // of the current step, so far
	ran     []Duration // finished steps of this run
	wrote   bool       // this run has written the journal
}

// Open loads the journal.
func (p *Progress) Open() (err error) {
	p.Record, err = p.Journal.Load()
	return err
}

// Start begins the given attempt at target in the record.
func (p *Progress) Start(attempt int, bootID string, target Target) {
	if attempt == 1 {
		p.Record.Started, p.Record.Phases, p.Record.Boots = time.Time{}, slices.Clone(p.ran), nil
	}
	p.Record.Phase, p.Record.BootID = PhaseApplying, bootID
	p.Record.Attempt, p.Record.Target, p.Record.Error, p.Record.Contents = attempt, target, nil, nil
	p.Record.Trial = nil
	if p.Record.Started.IsZero() {
		p.Record.Started = p.Now().UTC().Truncate(time.Second)
	}
}

// store keeps the contents of files and adds their digests to the record.
func (p *Progress) store(files []hostfiles.File) error {
	for _, f := range files {
		if f.Kind != hostfiles.KindFile {
			continue
		}
		if err := p.Journal.Store(f.Content); err != nil {
			return err
		}
		p.Record.Contents = append(p.Record.Contents, f.Digest)
	}
	return nil
}

// Begin ends the current step, if any, and begins another.
func (p *Progress) Begin(step Step, message string) {
	p.endStep()
	p.step, p.since = step, p.Now()
	p.running = Duration{Name: string(step), BootID: p.BootID, At: p.Boot.at(p.since)}
	p.send(Event{Kind: EventBegan, Step: step, Message: message})
}

// endStep ends the current step, if any, and adds its duration to the record.
func (p *Progress) endStep() {
	if p.step == "" {
		return
	}
	p.running.Seconds = seconds(p.Now().Sub(p.since))
	p.noteBoot()
	p.ran, p.Record.Phases = append(p.ran, p.running), append(p.Record.Phases, p.running)
	p.Record.Phases = p.Record.Phases[max(0, len(p.Record.Phases)-maxPhases):]
	p.step = ""
}

// Moved reports the progress of the current step.
func (p *Progress) Moved(a Amount) {
	p.running.Bytes = a.Done
	p.send(Event{Kind: EventProgressed, Step: p.step, Amount: a})
}

// Note emits a message for people.
func (p *Progress) Note(message string) {
	p.send(Event{Kind: EventNoted, Step: p.step, Message: message})
}

// Waiting reports that the current step waits after a try that failed for a transient reason.
func (p *Progress) Waiting(err error, pause retry.Pause) {
	p.failed(err, false)
	p.Record.Error = FailureOf(err)
	p.send(Event{Kind: EventWaiting, Step: p.step, Err: err, Message: pause.String()})
	p.Record.Error = nil
}

// Enter changes the phase, writes the journal, and then emits the event.
func (p *Progress) Enter(phase Phase, bootID string) error {
	if phase == PhaseDone || phase == PhaseFailed {
		p.end(phase)
	}
	p.Record.Phase, p.Record.BootID = phase, bootID
	if err := p.Journal.Save(p.Record); err != nil {
		return err
	}
	p.wrote = true
	p.send(Event{Kind: EventEntered, Step: p.step})
	return nil
}

// end adds the transaction to the history, unless it is there already.
func (p *Progress) end(phase Phase) {
	p.endStep()
	if phase == PhaseDone {
		p.Record.Contents = nil
	}
	if p.Record.Phase == phase {
		return
	}
	p.Record.Phase = phase
	p.Record.History = append(p.Record.History, Account{
		Phase: phase, Attempt: p.Record.Attempt, Image: p.Record.Target.Image, Error: p.Record.Error,
		Started: p.Record.Started, Ended: p.Now().UTC().Truncate(time.Second), Phases: p.Record.Phases, Boots: p.Record.Boots,
	})
	p.Record.History = p.Record.History[max(0, len(p.Record.History)-maxHistory):]
}

// Keep ends the current step and writes the journal, including the step's duration.
func (p *Progress) Keep() error {
	p.endStep()
	return p.Journal.Save(p.Record)
}

// Fail ends the run with err. It writes the journal only if this run has written it before, so
// that refused input leaves the host untouched. A permanent failure ends the transaction, unless
// it is committed or on trial: then the next boot or the trial decides. A signal interrupts a
// transaction that has not ended.
func (p *Progress) Fail(err error) {
	step := p.step
	p.failed(err, true)
	p.endStep()
	p.Record.Error = FailureOf(err)
	_, stopped := errors.AsType[fault.Stopped](err)
	switch {
	case p.Record.Phase == PhaseCommitted || p.Record.Phase == PhaseTrial:
	case p.Record.Error.Permanent:
		if p.wrote {
			p.end(PhaseFailed)
		}
		p.Record.Phase = PhaseFailed
	case stopped && p.Record.Phase.open():
		p.Record.Phase = PhaseInterrupted
	}
	if p.wrote {
		if jerr := p.Journal.Save(p.Record); jerr != nil {
			p.send(Event{Kind: EventNoted, Step: step, Message: jerr.Error()})
		}
	}
	p.send(Event{Kind: EventFailing, Step: step, Err: err})
}

// send emits an event with the current record.
func (p *Progress) send(e Event) {
	e.Record = p.Record
	e.Record.Phase = cmp.Or(e.Record.Phase, PhaseIdle) // the record is empty before Open
	p.Emit(e)
}
