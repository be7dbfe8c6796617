package pivot

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"machine-pivot/internal/disruption"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
)

// Need is what one change of a plan needs to take effect.
type Need struct {
	// Change is the path of an entry; "image", "kernelArguments" or "packages"; or
	// "deployment" for an operation that is still in progress on the machine.
	Change  string              `json:"change"`
	Actions []disruption.Action `json:"actions"` // empty if nothing is needed
	Because string              `json:"because"` // the reason, for people
}

// String returns the need for display.
func (n Need) String() string {
	needs := make([]string, len(n.Actions))
	for i, a := range n.Actions {
		needs[i] = a.String()
	}
	if len(needs) == 0 {
		needs = []string{"nothing"}
	}
	return n.Change + ": " + strings.Join(needs, ", ") + " (" + n.Because + ")"
}

// NeedReboot returns the need for a reboot.
func NeedReboot(change, because string) Need {
	return Need{Change: change, Actions: []disruption.Action{{Type: disruption.Reboot}}, Because: because}
}

// Judged returns the plan with what each of its changes needs. For entries the rules decide;
// others are needs that the caller has found already, and replace the rules for their paths.
// Image, arguments and packages always need a reboot, and so do entries without a rule. If no
// change needs a reboot, Actions says what is to be done instead, and Reboots is 0.
func (p Plan) Judged(rules disruption.Rules, others ...Need) Plan {
	p.judged = true
	if !p.Changed {
		return p
	}
	p.Needs = append(p.Needs, others...)
	for _, c := range []struct {
		change  string
		changed bool
	}{{"image", p.Image.Changed}, {"kernelArguments", p.Kargs.Changed}, {"packages", len(p.Packages) > 0}} {
		if c.changed {
			p.Needs = append(p.Needs, NeedReboot(c.change, "only a reboot changes it"))
		}
	}
	for _, e := range p.Entries {
		if !slices.ContainsFunc(others, func(n Need) bool { return n.Change == e.Path }) {
			p.Needs = append(p.Needs, needOf(e.Path, rules))
		}
	}
	var all []disruption.Action
	for _, n := range p.Needs {
		all = append(all, n.Actions...)
	}
	p.Actions = disruption.Order(all)
	if len(p.Actions) == 1 && p.Actions[0].Type == disruption.Reboot {
		p.Actions = nil
		return p
	}
	p.Reboots = 0
	p.keepSpelling(p.state.Booted.Options)
	return p
}

// needOf returns what the change of one entry needs.
func needOf(path string, rules disruption.Rules) Need {
	rule, ok := rules.For(path)
	if !ok {
		return NeedReboot(path, "no rule says that it needs none")
	}
	if slices.Contains(rule.Actions, disruption.Action{Type: disruption.Reboot}) {
		return NeedReboot(path, rule.String())
	}
	need := Need{Change: path, Actions: []disruption.Action{}, Because: rule.String()}
	if disruption.IsUnit(path) {
		need.Actions = append(need.Actions, disruption.Action{Type: disruption.DaemonReload})
	}
	for _, a := range rule.Actions {
		if a.Type != disruption.None && !slices.Contains(need.Actions, a) {
			need.Actions = append(need.Actions, a)
		}
	}
	return need
}

// maxLike bounds how many changes with the same reason RebootReasons names. The rest is counted.
const maxLike = 4

// RebootReasons returns why a plan needs a reboot, for people: one line for each change, up to
// maxLike with the same reason, and one line for the rest of these.
func (p Plan) RebootReasons() []string {
	var reasons []string
	like := map[string]int{}
	for _, n := range p.Needs {
		if len(n.Actions) != 1 || n.Actions[0].Type != disruption.Reboot {
			continue
		}
		if like[n.Because]++; like[n.Because] <= maxLike {
			reasons = append(reasons, n.Change+": "+n.Because)
		}
	}
	for _, because := range slices.Sorted(maps.Keys(like)) {
		if more := like[because] - maxLike; more > 0 {
			reasons = append(reasons, fmt.Sprintf("%d more changes: %s", more, because))
		}
	}
	return reasons
}

// ForReboot returns the plan judged to need a reboot whatever the rules say, for a reason.
func (p Plan) ForReboot(because string) Plan {
	p.judged = true
	if p.Changed {
		p.Needs = []Need{NeedReboot("deployment", because)}
	}
	return p.WithDrain(disruption.Rules{}, nil)
}

// refusal returns the error of a plan that needs a reboot when none is allowed.
func (p Plan) refusal() error {
	return fault.New(fault.Refused, "cannot apply the MachineConfig without a reboot: %s", strings.Join(p.RebootReasons(), "; ")).
		WithHint("allow one (--reboot=later, if-needed or now), or say in %s that a change needs none; nothing was changed", disruption.RulesPath)
}

// CheckLive runs the checks before a commit also for a change of the running system, and gives the notes
// of its plan. It writes nothing.
func (c *Converger) CheckLive(plan Plan) error {
	c.Progress.Begin(StepPreflight, "checking what could fail")
	for _, note := range plan.Notes {
		c.Progress.Note(note)
	}
	return c.checkLocal(plan)
}

// Changing returns the changing entries of a plan, for a change of the running system, with their
// contents and numeric owners. Entries of kind default are returned as such.
func (p Plan) Changing() ([]hostfiles.File, error) {
	along := hostfiles.Paths(p.req.OwnEntries)
	var wanted []hostfiles.Entry
	for _, e := range p.state.Etc.Of(p.target) {
		if !along[e.Path] && p.state.Etc.change(e) != "" {
			wanted = append(wanted, e)
		}
	}
	changed, err := p.files(wanted)
	if err != nil {
		return nil, err
	}
	for i, f := range changed {
		if changed[i].Entry, err = p.state.Etc.Accounts.Owned(f.Entry); err != nil {
			return nil, fault.New(fault.BadInput, "%w in the running system", err).WithHint("name one of its /etc/passwd or /etc/group, or give a number")
		}
	}
	return changed, nil
}
