package pivot

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"machine-pivot/internal/disruption"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/enable"
	"machine-pivot/internal/verdict"
	"machine-pivot/kargs"
)

// Plan is what has to change. Its JSON is the output of "pivot plan -o json". Diff computes the
// plan, and a Transaction carries out exactly that.
type Plan struct {
	Changed bool          `json:"changed"`
	Image   ImageChange   `json:"image"`
	Kargs   kargs.Result  `json:"kargs"`
	Entries []EntryChange `json:"files"`
	// Units are the changes of units with links that are resolved in the new system. If the system stays, their links
	// are among Entries instead.
	Units []UnitChange `json:"units"`
	// Packages are the changes relative to the booted system. On a new image fewer may be needed.
	Packages []PackageChange `json:"packages"`
	Reboots  int             `json:"reboots"` // 0 or 1
	// Needs are what each change needs. Actions are the actions, in order, that replace the
	// reboot if no change needs one. Both are empty unless the plan was Judged.
	Needs   []Need              `json:"needs,omitempty"`
	Actions []disruption.Action `json:"actions,omitempty"`
	// Drain says whether a cluster drains the node before; nil if that was not decided.
	Drain *Drain   `json:"drain,omitempty"`
	Notes []string `json:"notes"`
	// ImageKargs are the kernel arguments that the new image brings; nil if the image stays.
	ImageKargs *ImageKargs `json:"imageKargs,omitempty"`

	req    Request
	state  State
	target Target
	wrong  error // why the plan cannot be carried out; see Converger.Plan
	judged bool  // see Judged

	once string // see Once
	// files returns entries of the target with their contents.
	files func([]hostfiles.Entry) ([]hostfiles.File, error)
}

// Reach is how far the changes of a plan reach.
type Reach string

const (
	ReachNone    Reach = "none"    // nothing changes
	ReachRunning Reach = "running" // the changes take effect in the running system
	ReachBoot    Reach = "boot"    // they take effect with the next boot
)

// reach returns how far a plan reaches. Without rules, every change needs a reboot; and so does a
// machine that only runs something else than its next boot.
func (p Plan) reach() Reach {
	switch {
	case !p.judged, p.Reboots > 0:
		return ReachBoot
	case !p.Changed:
		return ReachNone
	}
	return ReachRunning
}

// Err returns why the plan cannot be carried out; nil if it can, as far as this is known yet.
func (p Plan) Err() error { return p.wrong }

// onlyEntries reports whether only entries have to change.
func (p Plan) onlyEntries() bool {
	return !p.Image.Changed && !p.Kargs.Changed && len(p.Packages) == 0 && len(p.Entries) > 0
}

// Request returns the request that the plan is for.
func (p Plan) Request() Request { return p.req }

// Tries reports whether the new system is entered only once, and is the default only when it has proven itself.
func (p Plan) Tries() bool { return p.once != "" }

// Once says how the new system is entered only once, and what that does not cover; "" unless the plan Tries.
func (p Plan) Once() string { return p.once }

// ByOnce returns the same plan with a new system that is entered only once; "": like any other.
func (p Plan) ByOnce(how string) Plan {
	p.once = how
	return p
}

// From returns the state that the plan starts from.
func (p Plan) From() State { return p.state }

// To returns the target that the plan leads to.
func (p Plan) To() Target { return p.target }

// ImageKargs are kernel arguments that an image brings.
type ImageKargs struct {
	Choice    string     `json:"choice"`    // print or apply
	Known     bool       `json:"known"`     // false if the image is not in the repository yet
	Arguments kargs.Line `json:"arguments"` // in the image's order
}

// ImageChange names the images before and after. They are equal if the image stays.
type ImageChange struct {
	Changed bool   `json:"changed"`
	From    string `json:"from"`
	To      string `json:"to"`
}

// planOf returns the plan of a request that is completed to a target.
func planOf(req Request, state State, target Target) Plan {
	plan, err := Diff(state, target, req.OwnEntries...)
	plan.req, plan.state, plan.target, plan.wrong = req, state, target, err
	return plan
}

// For returns the same plan for a target that has more of what is only learned during a run.
func (p Plan) For(target Target) (Plan, error) {
	plan := planOf(p.req, p.state, target)
	plan.files, plan.once = p.files, p.once
	return plan, plan.wrong
}

// With returns the same plan for a request with more entries that are no change by themselves.
func (p Plan) With(along ...hostfiles.File) Plan {
	p.req.OwnEntries = append(slices.Clone(p.req.OwnEntries), along...)
	return p
}

// Until returns the same plan for a request that must not wait after a time, with the error then.
func (p Plan) Until(at time.Time, over error) Plan {
	p.req.Until, p.req.Over = at, over
	return p
}

// OrOver returns the error of a wait. If its time limit has ended it, that is its reason.
func (p Plan) OrOver(ctx context.Context, err error) error {
	if p.req.Over == nil || ctx.Err() != nil || !fault.KindOf(err).Transient() {
		return err
	}
	return fault.New(fault.Unavailable, "%w: %w", p.req.Over, err)
}

// Pulled returns the same plan for an image that is in the repository with this commit.
func (p Plan) Pulled(commit string) Plan {
	p.target.Image.Commit = cmp.Or(p.target.Image.Commit, commit)
	return p
}

// Contents returns the target's entries with a prefix of their paths, with their contents.
func (p Plan) Contents(prefix string) ([]hostfiles.File, error) {
	if p.files == nil {
		return nil, nil
	}
	return p.files(slices.DeleteFunc(slices.Clone(p.target.Entries), func(e hostfiles.Entry) bool { return !strings.HasPrefix(e.Path, prefix) }))
}

// Accepting returns the same plan for a target that is accepted although something speaks against it.
func (p Plan) Accepting(accepted []verdict.Accepted) Plan {
	p.target.Accepted = accepted
	return p
}

// Diff computes what has to change to get from state to target. Differences without an effect
// are no change: the same digest under another name, arguments in another order, and arguments
// in another spelling, unless the target's are literal. Nor is a difference at the paths of along.
func Diff(state State, target Target, along ...hostfiles.File) (Plan, error) {
	plan, err := planFor(state, target, hostfiles.Paths(along))
	if wrong := state.Etc.Units.Err(); err == nil && wrong != nil && !plan.newSystem() {
		return plan, fault.New(fault.BadInput, "cannot use the MachineConfig's units in this system: %w", wrong).WithHint(enable.Hint)
	}
	return plan, err
}

// newSystem reports whether the plan changes /usr.
func (p Plan) newSystem() bool { return p.Image.Changed || len(p.Packages) > 0 }

// planFor is like Diff, but does not fail if a wish for a unit cannot be fulfilled.
func planFor(state State, target Target, along map[string]bool) (Plan, error) {
	result, err := target.Kargs.Apply(state.Booted.Options)
	if err != nil {
		return Plan{}, fault.New(fault.BadInput, "%w", err)
	}
	plan := Plan{
		Image:    ImageChange{From: nameOf(state.Booted), To: nameOf(state.Booted)},
		Kargs:    result,
		Units:    []UnitChange{},
		Packages: state.Packages.Changes(target.Packages),
		Notes:    notes(state, target),
		state:    state, target: target,
	}
	if imageChanges(state, target) {
		plan.Image.Changed, plan.Image.To = true, target.Image.String()
	}
	plan.Notes = append(plan.Notes, ownersOf(result.Deleted, state.Booted.Sources)...)
	plan.Entries = slices.DeleteFunc(state.Etc.Changes(state.Etc.Of(target)), func(c EntryChange) bool { return along[c.Path] })
	if plan.newSystem() {
		plan.Units = state.Etc.unitChanges(target)
		plan.Entries = slices.DeleteFunc(plan.Entries, func(c EntryChange) bool { return state.Etc.Units.By[c.Path] != "" })
	}
	plan.Changed = plan.newSystem() || result.Changed || len(plan.Entries) > 0
	if !plan.Changed {
		plan.keepSpelling(state.Booted.Options)
		return plan, nil
	}
	if lost := lostOf(state, target, result.Final); len(lost) > 0 {
		plan.Notes = append(plan.Notes, lostWith(state.Default, lost))
	}
	plan.Reboots = 1
	if err := result.Fits(state.Booted.Options, state.ByLoader); err != nil {
		return Plan{}, fault.New(fault.BadInput, "cannot use the kernel arguments: %w", err).
			WithHint("shorten them, or delete others in the same change: pivot rebase --delete-karg")
	}
	return plan, nil
}

// keepSpelling keeps the booted arguments as they are, for a plan that makes no new deployment,
// and notes those that are requested in another spelling.
func (p *Plan) keepSpelling(booted kargs.Line) {
	for _, arg := range p.Kargs.Respelled {
		p.Notes = append(p.Notes, fmt.Sprintf("kernel argument %s is there in another spelling; the next change writes it as asked", arg))
	}
	p.Kargs.Final, p.Kargs.Respelled = booted, nil
}

func imageChanges(state State, target Target) bool {
	if target.Image.Digest == "" && target.Image.Commit != "" { // the target system was not made from an image
		return target.Image.Commit != state.Booted.Commit
	}
	return !target.Image.IsZero() && !state.Booted.Runs(target.Image)
}

// nameOf returns a deployment's image, or its commit if it was not made from an image.
func nameOf(d Deployment) string {
	if d.Image.IsZero() {
		return "ostree commit " + d.Commit
	}
	return d.Image.String()
}

func notes(state State, target Target) []string {
	notes := []string{}
	from, to := state.Booted.Image, target.Image
	if !to.IsZero() && !from.IsZero() && state.Booted.Runs(to) && to.Reference().String() != from.Reference().String() {
		notes = append(notes, fmt.Sprintf("the booted image %s is the same content under another name", from.Reference()))
	}
	notes = append(notes, replaced(state)...)
	if others := state.Packages.others(target.Packages); len(others) > 0 {
		notes = append(notes, "packages that are layered beside those asked for stay: "+strings.Join(others, ", "))
	}
	return notes
}
