package pivot

import (
	"context"
	"fmt"
	"strings"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/enable"
	"machine-pivot/internal/retry"
	"machine-pivot/kargs"
)

// Ask is what one run asks of the machine.
type Ask struct {
	Image   Image // zero: the booted one stays; without a digest: it is named by a tag
	Kargs   kargs.Change
	Entries []hostfiles.File // below /etc and /var
	Units   enable.Units
	// Packages may have a source without a digest: it is named by a tag.
	Packages Packages
	// Checks are those of this run, beside the machine's.
	Checks []Check
	// TakenBack reports whether somebody went back to the system that runs; nil: nobody did.
	TakenBack func(State) bool
	// ImageKargs is what becomes of the kernel arguments that the image brings of its own.
	ImageKargs ImageKargsChoice
	// Trying is nil if the new system needs no trial.
	Trying *Trying
	// ByHand says that a person waits for the end: earlier attempts do not count, and
	// none follows.
	ByHand bool
}

// ImageKargsChoice is whether the kernel arguments that an image brings of its own count.
type ImageKargsChoice struct {
	Apply bool
	// ForThisRun says that it goes before what was chosen when the same was committed. A
	// setting does not: the next boot is to prove that commit, or to try it again.
	ForThisRun bool
}

// Check is an error if a plan could not be carried out, as is known without the
// network. It writes nothing.
type Check func(Plan) error

// Host is the machine as Converge looks at it.
type Host interface {
	// Observe looks at what is booted, at what the next boot starts, and at what both have
	// of the entries and packages that a target names.
	Observe(ctx context.Context, target Target) (State, error)
	// FinalizeFailure is what libostree left on why it could not make the last boot's
	// deployment the next one; "" if it left nothing.
	FinalizeFailure(ctx context.Context) string
}

// Contributor knows one kind of entries below /etc that belong to the next system
// although nobody may have asked for them in this run, as those that Ignition wrote.
type Contributor interface {
	// Entries are those that the next system shall have beside what a run asks for: those
	// that the running system has and its image does not, and what else is wanted.
	Entries() ([]hostfiles.File, error)
	// Check holds the entries of a plan, with what else the next boot will find, against
	// the machine. An error says that the next boot would not work.
	Check(plan Plan, entries []hostfiles.File) (warnings []string, err error)
	// Drift names what came to be wrong with a target that was reached, beyond changes
	// of its entries.
	Drift(state State, target Target) ([]string, error)
}

// Place is where a run happens: in the started system, or before it starts.
type Place interface {
	// Accept is an error of kind fault.Later if a decision is not for this place to
	// carry out.
	Accept(decision Decision, state State) error
	// Leave does what has to be done here between preparation and commit.
	Leave(ctx context.Context) error
}

// Content tells what only the content of an image does, as its own kernel arguments.
type Content interface {
	// Learn completes a plan whose image is in the repository now. Its notes are those
	// on what was learned.
	Learn(plan Plan) (Plan, error)
	// Accounts are the users and groups of the system that a plan leads to, whose image is
	// in the repository.
	Accounts(plan Plan) (hostfiles.Accounts, error)
	// Units are what a plan's target asks of units, in the system of a commit, which is in
	// the repository: the image's, or with packages on top of that.
	Units(plan Plan, commit string) (enable.Resolved, error)
	// Foresee is Learn for a plan that is only shown, whose image need not be there. It
	// adds to the plan's notes.
	Foresee(plan Plan) (Plan, error)
}

// Converger brings a machine to what is asked of it. Each story about a machine that
// changes (a first boot, a pivot by hand) or could (a plan, a verification) is told
// with one.
type Converger struct {
	Host         Host
	Place        Place
	Contributors []Contributor
	Checks       []Check // of the machine
	Images       Images
	Repositories Repositories
	Content      Content
	Engine       Engine
	Retry        retry.Policy
	Progress     *Progress

	contents map[hostfiles.Digest][]byte // of the files that this run has read
}

// Outcome is how far a run could come without a reboot.
type Outcome struct {
	Decision
	State  State // the machine as the run found it
	Target Target
}

// Converge observes the machine, decides what is to be done and does it, up to where
// only the reboot is missing: after ActionApply and ActionReboot the next boot is the target.
// Another decision is the caller's to carry out. The progress must be open.
//
// Nothing is written before the preflight is over.
func (c *Converger) Converge(ctx context.Context, ask Ask) (Outcome, error) {
	c.Progress.Begin(StepObserve, "looking at the host")
	state, target, err := c.measure(ctx, ask)
	if err != nil {
		return Outcome{}, err
	}
	out := Outcome{Decision: c.decide(ask, state, target), State: state, Target: target}
	if err := c.Place.Accept(out.Decision, state); err != nil || out.Action != ActionApply {
		return out, err
	}
	c.sayAttempt(ctx, out)
	plan, err := Diff(state, target)
	if err != nil {
		return out, err
	}
	if err := c.preflight(ctx, ask, plan); err != nil {
		return out, err
	}
	return out, c.apply(ctx, ask, plan, out.Attempt)
}

// Plan is what Converge would change, with what is doubtful about it. It writes
// nothing. The progress must be open.
func (c *Converger) Plan(ctx context.Context, ask Ask) (Plan, error) {
	state, target, err := c.measure(ctx, ask)
	if err != nil {
		return Plan{}, err
	}
	plan, err := Diff(state, target)
	if err != nil || !plan.Changed {
		return plan, err
	}
	if plan.Image.Changed {
		if plan, err = c.Content.Foresee(plan); err != nil {
			return Plan{}, err
		}
	}
	warnings, err := c.check(plan)
	plan.Notes = append(plan.Notes, warnings...)
	return plan, err
}

// measure is the machine, and what it shall be.
func (c *Converger) measure(ctx context.Context, ask Ask) (State, Target, error) {
	target, err := c.target(ctx, ask)
	if err != nil {
		return State{}, target, err
	}
	if target, err = c.adopt(ask, c.recall(ask, target)); err != nil {
		return State{}, target, err
	}
	state, err := c.Host.Observe(ctx, target)
	return state, target, err
}

// Differences names what of a target the running system is not, or no longer.
func (c *Converger) Differences(ctx context.Context, target Target) ([]string, error) {
	_, differences, err := c.Compare(ctx, target)
	return differences, err
}

// Compare is Differences with the state that was compared.
func (c *Converger) Compare(ctx context.Context, target Target) (state State, differences []string, err error) {
	if state, err = c.Host.Observe(ctx, target); err != nil {
		return state, nil, err
	}
	differences = Prove(state, target)
	for _, contributor := range c.Contributors {
		drift, err := contributor.Drift(state, target)
		if err != nil {
			return state, nil, err
		}
		differences = append(differences, drift...)
	}
	return state, differences, nil
}

// decide holds what was meant against what is true.
func (c *Converger) decide(ask Ask, state State, target Target) Decision {
	record := c.Progress.Record
	d := Decide(record, Facts{
		SameBoot:        record.BootID == state.BootID,
		SameTarget:      record.Target.Same(target),
		AtTarget:        len(Prove(state, target)) == 0,
		PendingAtTarget: ask.Trying == nil && record.Trial == nil && state.Pending() && len(Prove(state.AsIfRebooted(), target)) == 0,
		TakenBack:       ask.TakenBack != nil && ask.TakenBack(state),
	})
	if ask.ByHand && (d.Action == ActionApply || d.Action == ActionGiveUp) {
		return Decision{Action: ActionApply, Attempt: 1}
	}
	return d
}

// sayAttempt says why an attempt follows another one.
func (c *Converger) sayAttempt(ctx context.Context, out Outcome) {
	if record := c.Progress.Record; out.Attempt > record.Attempt && record.Phase == PhaseCommitted {
		c.Progress.Note(fmt.Sprintf("attempt %d of %d: the one before was committed, but this boot came up without it: %s",
			out.Attempt, MaxAttempts, c.Missing(ctx, out)))
	}
}

// Missing says what of the target the running system lacks, and why, where libostree
// left that.
func (c *Converger) Missing(ctx context.Context, out Outcome) string {
	text := strings.Join(Prove(out.State, out.Target), "; ")
	if plan, err := Diff(out.State, out.Target); err == nil && plan.onlyEntries() {
		text += "; image and arguments are there, as when something was staged on top of the commit, with the /etc that ran"
	}
	if failure := c.Host.FinalizeFailure(ctx); failure != "" {
		text += "; ostree could not finalize it: " + failure
	}
	return text
}
