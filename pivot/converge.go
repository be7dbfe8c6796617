package pivot

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/enable"
	"machine-pivot/internal/retry"
	"machine-pivot/kargs"
)

// Request is the request of one run.
type Request struct {
	Image   Image // zero keeps the booted image; without a digest it is a tag
	Kargs   kargs.Change
	Entries []hostfiles.File // below /etc and /var
	// OwnEntries are entries that the machine gets together with the changes, and that are no change by
	// themselves: the record of the MachineConfig, the links of pivot's own units.
	OwnEntries []hostfiles.File
	// Inherits returns entries that the new deployment of a commit in the repository gets besides all that, and changes by
	// itself once it runs; nil if there are none. Nothing is judged by them.
	Inherits func(commit string) ([]hostfiles.File, error)
	Units    enable.Units
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
	// WithoutBoundImages says that application images which the OS image binds may be missing.
	WithoutBoundImages bool
	// Shown says that the plan is only shown, as what a run would do that reboots.
	Shown bool
	// ByHand marks an interactive run: earlier attempts do not count, and none follows.
	ByHand bool
	// Repair restores what the machine was last asked for, also where that was changed by hand since.
	Repair bool
	// NeverReboot refuses a plan that needs a reboot.
	NeverReboot bool
	// Reboots says that the run reboots into the new system.
	Reboots bool
	// Until is when a wait must have ended; zero if there is no limit. Over is the error then.
	Until time.Time
	Over  error
	// Waited says that the run has waited already for what features wait for.
	Waited bool
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
	// ForgetPrepared undoes what a killed reboot has prepared to enter, past the boot loader.
	ForgetPrepared(ctx context.Context) error
}

// Contributor adds entries to a target, checks a plan, or reports drift; what it does not do returns nothing. It
// stands for what belongs to the next system even if this run does not request it, such as files that Ignition wrote.
type Contributor interface {
	// Entries returns the entries that the next system must have besides the requested ones: those that the running system
	// has and its image lacks, and other wanted ones.
	Entries() ([]hostfiles.File, error)
	// Check checks the entries of a plan, together with what else the next boot will find,
	// against the machine. An error means that the next boot would not work. A plan that
	// needs what is in another image is checked again when that image is in the repository.
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
	// Learn completes a plan with its image in the repository. The returned plan's notes are those about what was
	// learned.
	Learn(ctx context.Context, plan Plan) (Plan, error)
	// Accounts returns the users and groups of the plan's new system; its image is in the repository.
	Accounts(plan Plan) (hostfiles.Accounts, error)
	// Units resolves the plan's wishes for units in the system of commit, which is in the
	// repository: the image's commit, or one with packages layered on top.
	Units(plan Plan, commit string) (enable.Resolved, error)
	// Preview is like Learn, for a plan that is only shown. The image need not be in the
	// repository. It appends to the plan's notes.
	Preview(ctx context.Context, plan Plan) (Plan, error)
}

// Converger brings a machine to a target. Every command that changes a machine, or compares it with a target, uses one:
// Plan observes the machine, Decide says what to do, Converge does it.
type Converger struct {
	Host         Host
	Place        Place
	Contributors []Contributor
	Features     Features
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

// Plan observes the machine and returns what a request changes. That is the one observation of a
// decision: what follows takes the plan. It writes nothing. The progress must be open.
//
// Whether the plan can be made at all is in Plan.Err, so that a machine which has nothing to
// carry out is not stopped by it.
func (c *Converger) Plan(ctx context.Context, req Request) (Plan, error) {
	asked := Plan{req: req}
	if err := c.Features.Before(ctx, StepObserve, &asked); err != nil {
		return Plan{}, err
	}
	req = asked.req
	target, err := c.complete(ctx, req)
	if err != nil {
		return Plan{}, err
	}
	state, err := c.Host.Observe(ctx, target)
	if err != nil {
		return Plan{}, err
	}
	if req.ByHand && !req.Repair {
		target = target.withImageSettled(state)
	}
	plan := planOf(req, state, target)
	plan.files = c.files
	err = c.Features.After(ctx, StepObserve, &plan, false)
	return c.noteLost(ctx, plan), err
}

// Preview returns a plan as it is shown: its notes have the warnings of the preflight, and what is
// known about the image's kernel arguments.
func (c *Converger) Preview(ctx context.Context, plan Plan) (Plan, error) {
	if plan.wrong != nil || !plan.Changed {
		return plan, plan.wrong
	}
	if plan.Image.Changed {
		var err error
		if plan, err = c.Content.Preview(ctx, plan); err != nil {
			return Plan{}, err
		}
		if plan.target.Image.Commit != "" {
			if err := c.Features.After(ctx, StepPull, &plan, false); err != nil {
				return plan, err
			}
		}
	}
	if err := c.Features.Before(ctx, StepPreflight, &plan); err != nil {
		return plan, err
	}
	warnings, err := c.check(plan)
	plan.Notes = append(slices.Clone(plan.Notes), warnings...)
	return plan, err
}

// Converge carries out what Decide has decided about a plan, except for the reboot: after
// ActionApply and ActionReboot the next boot is the target. The caller carries out any other
// decision. Nothing is written before the preflight has succeeded.
func (c *Converger) Converge(ctx context.Context, plan Plan, d Decision) error {
	switch {
	case d.Action == ActionRefuse && d.Demand == DemandStop:
		return d.Why
	case d.Action == ActionRefuse:
		return plan.refusal()
	}
	if err := c.Place.Accept(d, plan.state); err != nil || d.Action != ActionApply {
		return err
	}
	c.sayAttempt(ctx, plan, d)
	if plan.wrong != nil {
		return plan.wrong
	}
	if err := c.preflight(ctx, &plan); err != nil {
		return err
	}
	return c.apply(ctx, plan, d.Attempt)
}

// Decide calls the function Decide with the journal's record and the facts of a plan.
func (c *Converger) Decide(plan Plan) Decision {
	journal, state, target := c.Progress.Content, plan.state, plan.target
	same, lacks := journal.Target.Same(target), Prove
	if same && journal.Phase == PhaseCommitted && !plan.req.ByHand {
		lacks = Failures // what users have changed since the commit does not need another one
	}
	demand, why := c.demand(plan)
	d := Decide(journal, Facts{
		Planned:         true,
		Demand:          demand,
		SameBoot:        journal.BootID == state.BootID,
		SameTarget:      same,
		AtTarget:        len(lacks(state, target)) == 0,
		PendingAtTarget: state.Pending() && len(lacks(state.AsIfRebooted(), target)) == 0,
		ByHand:          plan.req.ByHand,
		Reach:           plan.reach(),
		NeverReboot:     plan.req.NeverReboot,
	})
	d.Why = why
	return d
}

// demand returns the greatest demand on a plan, with its reason.
func (c *Converger) demand(plan Plan) (greatest Demand, why error) {
	for _, f := range c.Features {
		demand, because := f.Demand(&plan)
		if demand > greatest && (demand != DemandWait || !plan.req.Waited) {
			greatest, why = demand, because
		}
	}
	if plan.req.TakenBack != nil && plan.req.TakenBack(plan.state) {
		greatest = max(greatest, DemandStay)
	}
	return greatest, why
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

// Failures is like Differences without what users may change at any time, and what the target says may be missing.
func (c *Converger) Failures(ctx context.Context, target Target) ([]string, error) {
	state, err := c.Host.Observe(ctx, target)
	if err != nil {
		return nil, err
	}
	differences, err := c.classified(state, target.withoutUsers(state.Etc))
	if target.WithoutBoundImages {
		differences = slices.DeleteFunc(differences, func(d Difference) bool { return d.Class == ClassBoundImage })
	}
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

// sayAttempt notes why there is another attempt.
func (c *Converger) sayAttempt(ctx context.Context, plan Plan, d Decision) {
	if journal := c.Progress.Content; d.Attempt > journal.Attempt && journal.Phase == PhaseCommitted {
		c.Progress.Note(fmt.Sprintf("attempt %d of %d: the one before was committed, but this boot came up without it: %s",
			d.Attempt, MaxAttempts, c.Missing(ctx, plan)))
	}
}

// Missing returns what the running system lacks of a plan's target, with the reason if libostree
// has left one.
func (c *Converger) Missing(ctx context.Context, plan Plan) string {
	text := strings.Join(Prove(plan.state, plan.target), "; ")
	if plan.wrong == nil && plan.onlyEntries() {
		text += "; image and arguments are there, as when something was staged on top of the commit, with the /etc that ran"
	}
	if failure := c.Host.FinalizeFailure(ctx); failure != "" {
		text += "; ostree could not finalize it: " + failure
	}
	return text
}
