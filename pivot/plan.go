package pivot

import (
	"fmt"
	"slices"
	"strings"

	"machine-pivot/internal/disruption"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/machineconfig/enable"
	"machine-pivot/kargs"
)

// Plan is what has to change, in the JSON form of "pivot plan -o json". Diff makes
// it, people read it, and a Transaction carries out just that.
type Plan struct {
	Changed bool          `json:"changed"`
	Image   ImageChange   `json:"image"`
	Kargs   kargs.Result  `json:"kargs"`
	Entries []EntryChange `json:"files"`
	// Units are those whose links are worked out in the new system. If the system stays, they
	// are among Entries.
	Units []UnitChange `json:"units"`
	// Packages are the changes on top of the booted image; on top of another one they may
	// be fewer.
	Packages []PackageChange `json:"packages"`
	Reboots  int             `json:"reboots"` // 0 or 1
	// Needs say of each change what it needs, and Actions what is done about services
	// where nothing needs a reboot, in its order. A plan that no rules were held against
	// has neither.
	Needs   []Need              `json:"needs,omitempty"`
	Actions []disruption.Action `json:"actions,omitempty"`
	Notes   []string            `json:"notes"`
	// ImageKargs is what the new image brings of its own; nil if the image stays.
	ImageKargs *ImageKargs `json:"imageKargs,omitempty"`

	state  State // what it starts from
	target Target
}

// onlyEntries reports whether nothing but entries has to change.
func (p Plan) onlyEntries() bool {
	return !p.Image.Changed && !p.Kargs.Changed && len(p.Packages) == 0 && len(p.Entries) > 0
}

// From is the state that a plan starts from.
func (p Plan) From() State { return p.state }

// To is the target that a plan leads to.
func (p Plan) To() Target { return p.target }

// ImageKargs are kernel arguments that an image brings.
type ImageKargs struct {
	Choice    string     `json:"choice"`    // print or apply
	Known     bool       `json:"known"`     // false: not before the image is in the repository
	Arguments kargs.Line `json:"arguments"` // in the order of the image
}

// ImageChange names the images before and after; equal when the image stays.
type ImageChange struct {
	Changed bool   `json:"changed"`
	From    string `json:"from"`
	To      string `json:"to"`
}

// Diff works out what has to change to make state the target. Equal meaning is
// no change: the same digest under another name, arguments in another order, and,
// unless the target's are literal, in another spelling.
func Diff(state State, target Target) (Plan, error) {
	plan, err := planFor(state, target)
	if wrong := state.Etc.Units.Err(); err == nil && wrong != nil && !plan.newSystem() {
		return plan, fault.New(fault.BadInput, "cannot use the MachineConfig's units in this system: %w", wrong).WithHint(enable.Hint)
	}
	return plan, err
}

// newSystem reports whether the next boot has another /usr than the booted one.
func (p Plan) newSystem() bool { return p.Image.Changed || len(p.Packages) > 0 }

// planFor is Diff also where a wish for a unit cannot come true.
func planFor(state State, target Target) (Plan, error) {
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
	plan.Entries = state.Etc.Changes(state.Etc.Of(target))
	if plan.newSystem() {
		plan.Units = state.Etc.unitChanges(target)
		plan.Entries = slices.DeleteFunc(plan.Entries, func(c EntryChange) bool { return state.Etc.Units.By[c.Path] != "" })
	}
	plan.Changed = plan.newSystem() || result.Changed || len(plan.Entries) > 0
	if !plan.Changed {
		plan.keepSpelling(state.Booted.Options)
		return plan, nil
	}
	plan.Reboots = 1
	if err := result.Final.Fits(); err != nil && !result.Final.Equal(state.Booted.Options) {
		return Plan{}, fault.New(fault.BadInput, "cannot use the kernel arguments: the command line would have %w", err)
	}
	return plan, nil
}

// keepSpelling leaves the arguments of a machine that needs no change as they are,
// and notes those that are asked for in another spelling.
func (p *Plan) keepSpelling(booted kargs.Line) {
	for _, arg := range p.Kargs.Respelled {
		p.Notes = append(p.Notes, fmt.Sprintf("kernel argument %s is there in another spelling; the next change writes it as asked", arg))
	}
	p.Kargs.Final, p.Kargs.Respelled = booted, nil
}

func imageChanges(state State, target Target) bool {
	if target.Image.Digest == "" && target.Image.Commit != "" { // a system that was made from no image
		return target.Image.Commit != state.Booted.Commit
	}
	return !target.Image.IsZero() && !target.Image.Same(state.Booted.Image)
}

// nameOf is what a deployment runs: its image, or its commit if it was not made from one.
func nameOf(d Deployment) string {
	if d.Image.IsZero() {
		return "ostree commit " + d.Commit
	}
	return d.Image.String()
}

func notes(state State, target Target) []string {
	notes := []string{}
	from, to := state.Booted.Image, target.Image
	if to.Same(from) && to.Reference != from.Reference {
		notes = append(notes, fmt.Sprintf("the booted image %s is the same content under another name", from.Reference))
	}
	if state.Pending() {
		how := "pending"
		if state.Default.Staged {
			how = "staged"
		}
		notes = append(notes, fmt.Sprintf("deployment %s is %s and will be replaced", state.Default.ID(), how))
	}
	if others := state.Packages.others(target.Packages); len(others) > 0 {
		notes = append(notes, "packages that are layered beside those asked for stay: "+strings.Join(others, ", "))
	}
	return notes
}

// Prove compares what runs with what was asked for and names each difference;
// none means the target is reached. Unlike Diff it also looks at the running
// kernel's own command line, which a boot loader may have changed.
func Prove(state State, target Target) []string {
	plan, err := planFor(state, target)
	if err != nil {
		return []string{err.Error()}
	}
	var differences []string
	differ := func(format string, args ...any) { differences = append(differences, fmt.Sprintf(format, args...)) }
	if plan.Image.Changed {
		differ("image: booted %s, wanted %s", plan.Image.From, plan.Image.To)
	}
	if want := target.Image.Commit; want != "" && !state.Booted.carries(want) {
		differ("ostree commit: booted %s, wanted %s", state.Booted.Commit, want)
	}
	for _, arg := range plan.Kargs.Appended {
		differ("kernel argument %s: not in effect in the boot entry", arg)
	}
	for _, arg := range plan.Kargs.Deleted {
		if !slices.Contains(plan.Kargs.Appended, arg) {
			differ("kernel argument %s: still in the boot entry", arg)
		}
	}
	if target.Kargs.Literal {
		for _, arg := range plan.Kargs.Respelled {
			differ("kernel argument %s: in the boot entry in another spelling only, and the machine-config daemon compares to the letter", arg)
		}
	}
	if running, err := target.Kargs.Apply(state.Cmdline); err == nil && !plan.Kargs.Changed {
		for _, arg := range running.Appended {
			differ("kernel argument %s: in the boot entry, but the running kernel was started without it", arg)
		}
	}
	for _, change := range plan.Entries {
		differ("%s", change)
	}
	for _, change := range plan.Packages {
		differ("%s", change)
	}
	if wrong := state.Etc.Units.Err(); wrong != nil && !plan.newSystem() {
		differ("%s", strings.ReplaceAll(wrong.Error(), "\n", "; "))
	}
	return differences
}
