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

// Ask is the request of one run.
type Ask struct {
	Image   Image // zero keeps the booted image; without a digest it is a tag
	Kargs   kargs.Change
	Entries []hostfiles.File // below /etc and /var
	Units   enable.Units
	// MachineConfig is the one that requests all this; zero if none does.
	MachineConfig MachineConfig
	// Packages may have a source without a digest, which is then a tag.
	Packages Packages
	// Checks are run in addition to the machine's checks.
	Checks []Check
	// TakenBack reports whether an administrator went back to the running system; nil means no.
	TakenBack func(State) bool
	// ImageKargs says whether kernel arguments that the image brings are applied.
	ImageKargs ImageKargsChoice
	// Trying is nil if the new system needs no trial.
	Trying *Trying
	// ByHand marks an interactive run: earlier attempts do not count, and none follows.
	ByHand bool
}

// ImageKargsChoice says whether kernel arguments that an image brings are applied.
type ImageKargsChoice struct {
	Apply bool
	// ForThisRun says that Apply overrides the choice with which the same target was committed.
	// A setting does not override it, because the next boot must prove or retry that commit.
	ForThisRun bool
}

// Check returns an error if a plan cannot be carried out, as far as this is known without the
// network. It writes nothing.
type Check func(Plan) error

// Host is Converge's view of the machine.
type Host interface {
	// Observe returns what is booted, what the next boot starts, and the target's entries and
	// packages as both have them.
	Observe(ctx context.Context, target Target) (State, error)
	// FinalizeFailure returns the message that libostree left if it could not finalize the
	// staged deployment at the last shutdown; "" if there is none.
	FinalizeFailure(ctx context.Context) string
}

// Contributor provides one kind of entries below /etc that belong to the next system even if
// this run does not request them, such as files that Ignition wrote.
type Contributor interface {
	// Entries returns the entries that the next system must have in addition to the requested
	// ones: those that the running system has and its image does not, and other wanted ones.
	Entries() ([]hostfiles.File, error)
	// Check checks the entries of a plan, together with what else the next boot will find,
	// against the machine. An error means that the next boot would not work.
	Check(plan Plan, entries []hostfiles.File) (warnings []string, err error)
	// Drift returns what is wrong by now with a target that was reached, apart from changes of
	// its entries.
	Drift(state State, target Target) ([]Difference, error)
}

// Place is where a run happens: in the started system, or in the initramfs.
type Place interface {
	// Accept returns an error of kind fault.Later if a decision cannot be carried out in this
	// place.
	Accept(decision Decision, state State) error
	// Leave does what this place requires between preparation and commit.
	Leave(ctx context.Context) error
}

// Content provides information that is only in the content of an image, such as the kernel
// arguments that it brings.
type Content interface {
	// Learn completes a plan whose image is in the repository. The returned plan's notes are
	// those about what was learned.
	Learn(plan Plan) (Plan, error)
	// Accounts returns the users and groups of the plan's new system, whose image is in the
	// repository.
	Accounts(plan Plan) (hostfiles.Accounts, error)
	// Units resolves the plan's wishes for units in the system of commit, which is in the
	// repository: the image's commit, or one with packages layered on top.
	Units(plan Plan, commit string) (enable.Resolved, error)
	// Foresee is like Learn, for a plan that is only shown. The image need not be in the
	// repository. It appends to the plan's notes.
	Foresee(plan Plan) (Plan, error)
}

// Converger brings a machine to a target. Every operation that changes a machine (a first boot,
// a pivot by hand) or only compares it with a target (a plan, a verification) uses one.
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
	// Pulling is called before a run by hand pulls an image, which nothing else records until the
	// commit; nil is a no-op.
	Pulling func(Image) error

	contents map[hostfiles.Digest][]byte // of the files that this run has read
}

// Outcome is the result of a run, before the reboot.
type Outcome struct {
	Decision
	State  State // the machine as the run found it
	Target Target
}

// Converge observes the machine, decides what to do and does it, except for the reboot: after
// ActionApply and ActionReboot the next boot is the target. The caller carries out any other
// decision. The progress must be open.
//
// Nothing is written before the preflight has succeeded.
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

// Plan returns what Converge would change, with warnings in the notes. It writes nothing. The
// progress must be open.
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

// measure returns the state of the machine and the complete target.
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

// Differences returns how the running system differs from target, for display.
func (c *Converger) Differences(ctx context.Context, target Target) ([]string, error) {
	_, differences, err := c.Compare(ctx, target)
	return Texts(differences), err
}

// Compare returns how the running system differs from target, and the observed state.
func (c *Converger) Compare(ctx context.Context, target Target) (state State, differences []Difference, err error) {
	if state, err = c.Host.Observe(ctx, target); err != nil {
		return state, nil, err
	}
	differences, err = c.classified(state, target)
	return state, differences, err
}

// Failures is like Differences without what users may change at any time.
func (c *Converger) Failures(ctx context.Context, target Target) ([]string, error) {
	state, err := c.Host.Observe(ctx, target)
	if err != nil {
		return nil, err
	}
	differences, err := c.classified(state, target.withoutUsers(state.Etc))
	return Texts(differences), err
}

func (c *Converger) classified(state State, target Target) ([]Difference, error) {
	differences := Compare(state, target)
	for _, contributor := range c.Contributors {
		drift, err := contributor.Drift(state, target)
		if err != nil {
			return nil, err
		}
		differences = append(differences, drift...)
	}
	return differences, nil
}

// decide calls Decide with the journal's record and the state of the host. A run by hand has only
// one attempt, and never gives up.
func (c *Converger) decide(ask Ask, state State, target Target) Decision {
	record := c.Progress.Record
	same, lacks := record.Target.Same(target), Prove
	if same && record.Phase == PhaseCommitted && !ask.ByHand {
		lacks = Failures // what users have changed since the commit does not need another one
	}
	d := Decide(record, Facts{
		SameBoot:        record.BootID == state.BootID,
		SameTarget:      same,
		AtTarget:        len(lacks(state, target)) == 0,
		PendingAtTarget: ask.Trying == nil && record.Trial == nil && state.Pending() && len(lacks(state.AsIfRebooted(), target)) == 0,
		TakenBack:       ask.TakenBack != nil && ask.TakenBack(state),
	})
	if ask.ByHand && (d.Action == ActionApply || d.Action == ActionGiveUp) {
		return Decision{Action: ActionApply, Attempt: 1}
	}
	return d
}

// sayAttempt notes why there is another attempt.
func (c *Converger) sayAttempt(ctx context.Context, out Outcome) {
	if record := c.Progress.Record; out.Attempt > record.Attempt && record.Phase == PhaseCommitted {
		c.Progress.Note(fmt.Sprintf("attempt %d of %d: the one before was committed, but this boot came up without it: %s",
			out.Attempt, MaxAttempts, c.Missing(ctx, out)))
	}
}

// Missing returns what the running system lacks of the target, with the reason if libostree has
// left one.
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
