package pivot

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/pid1"
	"machine-pivot/internal/retry"
)

// Progress tracks a run: it keeps the journal and emits events, each with the journal's current content.
type Progress struct {
	Journal Journal
	Content JournalContent
	Emit    Emit
	Now     func() time.Time
	BootID  pid1.StartID // of this start; "" if unknown
	Boot    Boot         // this boot's times; its ID is "" if they are unknown
	Command string       // the name of the command that runs, for the status; "" if there is none
	// FirstBoot says that the run is of a first boot that is still open: its failure is the
	// machine's. Any other run that fails before it has changed anything leaves the machine's
	// phase and its journal as they were.
	FirstBoot bool

	step    Step
	since   time.Time
	running Duration   // of the current step, so far
	ran     []Duration // finished steps of this run
	wrote   bool       // this run has written the journal
	told    bool       // this run has emitted an event
	open    bool       // the journal has this run's transaction, which is not over
}

// Open loads the journal.
func (p *Progress) Open() (err error) {
	p.Content, err = p.Journal.Load()
	return err
}

// Start begins the given attempt at target in the journal.
func (p *Progress) Start(attempt int, bootID pid1.StartID, target Target) {
	if attempt == 1 {
		p.Content.Started, p.Content.Phases, p.Content.Boots = time.Time{}, slices.Clone(p.ran), nil
	}
	p.Content.Phase, p.Content.BootID = PhaseApplying, bootID
	p.Content.Attempt, p.Content.Target, p.Content.Error, p.Content.Contents = attempt, target, nil, nil
	p.Content.Features = p.Content.WithoutHolds()
	if p.Content.Started.IsZero() {
		p.Content.Started = p.Now().UTC().Truncate(time.Second)
	}
}

// store keeps the contents of files and adds their digests to the journal.
func (p *Progress) store(files []hostfiles.File) error {
	for _, f := range files {
		if f.Kind != hostfiles.KindFile {
			continue
		}
		if err := p.Journal.Store(f.Content); err != nil {
			return err
		}
		p.Content.Contents = append(p.Content.Contents, f.Digest)
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

// endStep ends the current step, if any, and adds its duration to the journal's content.
func (p *Progress) endStep() {
	if p.step == "" {
		return
	}
	p.running.Seconds = seconds(p.Now().Sub(p.since))
	p.noteBoot()
	p.ran, p.Content.Phases = append(p.ran, p.running), append(p.Content.Phases, p.running)
	p.Content.Phases = p.Content.Phases[max(0, len(p.Content.Phases)-maxPhases):]
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
	p.Content.Error = FailureOf(err)
	p.send(Event{Kind: EventWaiting, Step: p.step, Err: err, Message: pause.String()})
	p.Content.Error = nil
}

// Enter changes the phase, writes the journal, and then emits the event.
func (p *Progress) Enter(phase Phase, bootID pid1.StartID) error {
	if phase == PhaseDone || phase == PhaseFailed {
		p.account(phase)
	}
	p.Content.Phase, p.Content.BootID = phase, bootID
	if err := p.Journal.Save(p.Content); err != nil {
		return err
	}
	p.wrote = true
	p.open = phase == PhaseApplying || phase == PhaseCommitted || phase == PhaseTrial
	p.send(Event{Kind: EventEntered, Step: p.step})
	return nil
}

// Announce is Enter without the journal, for a phase that lasts only as long as this run.
func (p *Progress) Announce(phase Phase, bootID pid1.StartID) {
	p.Content.Phase, p.Content.BootID = phase, bootID
	p.send(Event{Kind: EventEntered, Step: p.step})
}

// Journaled reports whether this run has written the journal.
func (p *Progress) Journaled() bool { return p.wrote }

// restore puts a content back in the journal that this run has replaced.
func (p *Progress) restore(before JournalContent) error {
	p.open = false
	return p.Journal.Save(before)
}

// account adds the transaction to the history, unless it is there already. The history is in the
// journal's own file, so that the end of a transaction and its account are one write.
func (p *Progress) account(phase Phase) {
	p.endStep()
	if phase == PhaseDone {
		p.Content.Contents = nil
	}
	if p.Content.Phase == phase {
		return
	}
	p.Content.Phase = phase
	p.Content.History = append(p.Content.History, Account{
		Phase: phase, Attempt: p.Content.Attempt, Image: p.Content.Target.Image, Error: p.Content.Error,
		Started: p.Content.Started, Ended: p.Now().UTC().Truncate(time.Second), Phases: p.Content.Phases, Boots: p.Content.Boots,
	})
	p.Content.History = p.Content.History[max(0, len(p.Content.History)-maxHistory):]
}

// Keep ends the current step and writes the journal, including the step's duration.
func (p *Progress) Keep() error {
	p.endStep()
	return p.Journal.Save(p.Content)
}

// End ends the run, with err or successfully.
func (p *Progress) End(err error) {
	if err != nil {
		p.Fail(err)
		return
	}
	p.endStep()
	p.Over(nil)
}

// Over reports the end of the run. Its err, if any, was reported already.
func (p *Progress) Over(err error) {
	if p.told {
		p.send(Event{Kind: EventEnded, Err: err})
	}
}

// Fail ends the run with err. It writes the journal only if the journal has this run's
// transaction. A permanent failure ends that transaction, unless it is committed or on trial:
// then the next boot or the trial decides. A run without a transaction has changed nothing, so
// the content is again what the journal has; only a first boot fails as a whole. A signal interrupts a
// machine that is at no target yet.
func (p *Progress) Fail(err error) {
	step := p.step
	p.failed(err, true)
	p.endStep()
	_, stopped := errors.AsType[fault.Stopped](err)
	if !p.open && !p.FirstBoot {
		p.forget()
		if stopped && p.Content.Phase.open() {
			p.Content.Phase = PhaseInterrupted
		}
		p.send(Event{Kind: EventFailing, Step: step, Err: err})
		return
	}
	p.Content.Error = FailureOf(err)
	switch {
	case p.Content.Phase == PhaseCommitted || p.Content.Phase == PhaseTrial:
	case p.Content.Error.Permanent:
		if p.wrote {
			p.account(PhaseFailed)
		}
		p.Content.Phase = PhaseFailed
	case stopped && p.Content.Phase.open():
		p.Content.Phase = PhaseInterrupted
	}
	if p.wrote {
		if jerr := p.Journal.Save(p.Content); jerr != nil {
			p.send(Event{Kind: EventNoted, Step: step, Message: jerr.Error()})
		}
	}
	p.send(Event{Kind: EventFailing, Step: step, Err: err})
}

// forget sets the content to what the journal has, except for the steps that ran and their boots:
// they are shown.
func (p *Progress) forget() {
	if journal, err := p.Journal.Load(); err == nil {
		journal.Phases, journal.Boots = p.Content.Phases, p.Content.Boots
		p.Content = journal
	}
}

// send emits an event with the current record.
func (p *Progress) send(e Event) {
	p.told = true
	e.Start, e.Journal, e.Command = p.BootID, p.Content, p.Command
	e.Journal.Phase = cmp.Or(e.Journal.Phase, PhaseIdle) // the content is empty before Open
	p.Emit(e)
}
