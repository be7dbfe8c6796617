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

// Need is what one change of a plan needs.
type Need struct {
	// Change is the path of an entry; "image", "kernelArguments" or "packages"; or
	// "deployment" for what the machine is in the middle of.
	Change  string              `json:"change"`
	Actions []disruption.Action `json:"actions"` // none: nothing
	Because string              `json:"because"` // in words
}

// String is the need in words.
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

// NeedReboot is the need of a reboot.
func NeedReboot(change, because string) Need {
	return Need{Change: change, Actions: []disruption.Action{{Type: disruption.Reboot}}, Because: because}
}

// Judged is the plan with what each of its changes needs: those of entries by rules, and
// others, which are why it could not be carried out live. Image, arguments and packages
// always need a reboot, and so does what no rule is for.
func (p Plan) Judged(rules disruption.Rules, others ...Need) Plan {
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

// needOf is what the change of one entry needs.
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

// maxLike is how many changes that need a reboot for the same reason are named; of more of
// them, the rest is counted.
const maxLike = 4

// RebootReasons are why a plan needs a reboot, for people: one for each change that does, but
// for those of many that have the same reason.
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

// Live are the entries of a plan that change, for a system that goes on running: with
// their contents, and owners by the numbers that they have in it. What would fail is found
// out, as before a commit; nothing is written. Entries that shall be as the image has
// them are left so.
func (c *Converger) Live(ask Ask, plan Plan) ([]hostfiles.File, error) {
	c.Progress.Begin(StepPreflight, "checking what could fail")
	for _, note := range plan.Notes {
		c.Progress.Note(note)
	}
	for _, check := range ask.Checks {
		if err := check(plan); err != nil {
			return nil, err
		}
	}
	if err := c.Progress.Journal.CheckWritable(); err != nil {
		return nil, err
	}
	all, err := c.files(plan.state.Etc.Of(plan.target))
	if err != nil {
		return nil, err
	}
	var changed []hostfiles.File
	for _, f := range all {
		if plan.state.Etc.change(f.Entry) == "" {
			continue
		}
		if f.Entry, err = plan.state.Etc.Accounts.Owned(f.Entry); err != nil {
			return nil, fault.New(fault.BadInput, "%w in the running system", err).WithHint("name one that it has, or give a number")
		}
		changed = append(changed, f)
	}
	return changed, nil
}
