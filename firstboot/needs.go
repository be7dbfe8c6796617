package firstboot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"machine-pivot/internal/disruption"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/live"
	"machine-pivot/internal/projection"
	"machine-pivot/internal/varentries"
	"machine-pivot/pivot"
)

// When is when a machine reboots for another MachineConfig.
type When string

// The choices. Where no change needs a reboot, and none is asked for, what runs is changed.
const (
	RebootNever    When = "never"     // what needs a reboot is refused
	RebootLater    When = "later"     // what needs one is committed, and somebody else reboots
	RebootIfNeeded When = "if-needed" // at once, if there is need
	RebootNow      When = "now"       // all is committed, whatever the rules say, and the machine reboots
)

// judged is a plan with what its changes need, by the rules that the machine has now: a
// MachineConfig that brings others is not judged by them.
func (a *Apply) judged(plan pivot.Plan, entries []hostfiles.File) (pivot.Plan, error) {
	for _, f := range entries {
		if f.Path == disruption.RulesPath && f.Kind == hostfiles.KindFile {
			if _, report := disruption.Read(f.Path, f.Content); report.Failed() {
				return plan, report.Err("the rules that the MachineConfig brings")
			}
		}
	}
	if a.When == RebootNow {
		if plan.Changed {
			plan.Needs = []pivot.Need{pivot.NeedReboot("deployment", "--reboot=now asks for one")}
		}
		return plan, nil
	}
	rules, err := a.rules()
	if err != nil {
		return plan, err
	}
	return plan.Judged(rules, a.hindrances(plan)...), nil
}

// rules are those of the machine.
func (a *Apply) rules() (disruption.Rules, error) {
	data, err := os.ReadFile(a.Host.Path(disruption.RulesPath))
	if errors.Is(err, fs.ErrNotExist) {
		return disruption.Defaults(), nil
	}
	if err != nil {
		return disruption.Rules{}, fmt.Errorf("cannot read the rules of what needs a reboot: %w", err)
	}
	rules, report := disruption.Read(disruption.RulesPath, data)
	if err := report.Err(disruption.RulesPath); err != nil {
		return rules, fault.New(fault.BadInput, "%w", err).
			WithHint("correct what the report names and try again, or do without rules: --reboot=now; nothing was changed")
	}
	for _, p := range report {
		a.Progress.Note(p.Text())
	}
	return rules, nil
}

// hindrances are why a plan cannot be carried out in the running system, whatever the
// rules say.
func (a *Apply) hindrances(plan pivot.Plan) []pivot.Need {
	var all []pivot.Need
	state := plan.From()
	if state.Pending() && !state.Default.Staged {
		all = append(all, pivot.NeedReboot("deployment", fmt.Sprintf("%s is committed and waits for its reboot; it would not have the change, so one is made in its place", state.Default.ID())))
	}
	if a.services() == nil {
		all = append(all, pivot.NeedReboot("deployment", "it is not the system that runs"))
	}
	changes, outside := map[string]bool{}, ""
	for _, e := range plan.Entries {
		changes[e.Path] = true
	}
	if slices.ContainsFunc(plan.Entries, func(e pivot.EntryChange) bool { return varentries.Outside(e.Path) }) {
		outside = a.unsettled()
	}
	for _, e := range state.Etc.Of(plan.To()) { // with the links of units
		if !changes[e.Path] {
			continue
		}
		why := outside
		if !varentries.Outside(e.Path) {
			why = a.hindrance(state.Etc, e)
		}
		if why != "" {
			all = append(all, pivot.NeedReboot(e.Path, why))
		}
	}
	return all
}

// hindrance is why an entry below /etc cannot be changed in the running system; "" if it can.
func (a *Apply) hindrance(etc pivot.Etc, want hostfiles.Entry) string {
	have, there := etc.Entries[want.Path]
	wanted := want.Kind
	if want.Removes() {
		shipped, ships := etc.Image[want.Path]
		wanted = shipped.Kind
		if !ships || want.Kind == hostfiles.KindAbsent {
			wanted = have.Kind // it goes, and nothing comes
		}
	}
	switch {
	case want.OnDisk() != want.Path:
		return live.Unreachable(a.Host.Root, want.OnDisk())
	case wanted == hostfiles.KindOther, there && have.Kind == hostfiles.KindOther:
		return "it is no file, directory or link"
	case there && (have.Kind == hostfiles.KindDirectory) != (wanted == hostfiles.KindDirectory):
		return fmt.Sprintf("a %s comes where there is a %s", wanted, have.Kind)
	case !there && want.Kind == hostfiles.KindDefault && wanted == hostfiles.KindDirectory:
		return "the image's directory comes back, with what is in it"
	}
	return live.Unreachable(a.Host.Root, want.Path)
}

// unsettled is why nothing can be changed outside of /etc; "" if it can. What cannot be made
// fails then, and all is taken back: which would fail too if it was so before.
func (a *Apply) unsettled() string {
	if settled, err := projection.Settled(a.Host.Root); err != nil || !settled {
		return "not all is there that this system asks for outside of /etc: pivot project says why"
	}
	return ""
}

// warnOfNext says where the system that runs is what the MachineConfig asks for, but the
// next boot is not.
func (a *Apply) warnOfNext(plan pivot.Plan) {
	state := plan.From()
	if !state.Pending() {
		return
	}
	if differences := pivot.Prove(state.AsIfRebooted(), plan.To()); len(differences) > 0 {
		a.Progress.Note(fmt.Sprintf("warning: the next boot starts deployment %s, which is not what the MachineConfig asks for (%s); pivot rollback takes it back",
			state.Default.ID(), strings.Join(differences, "; ")))
	}
}

// refuse is an error for a plan that needs a reboot where none may be.
func (a *Apply) refuse(plan pivot.Plan) error {
	return fault.New(fault.Refused, "cannot apply the MachineConfig without a reboot: %s", strings.Join(plan.RebootReasons(), "; ")).
		WithHint("allow one (--reboot=later, if-needed or now), or say in %s that a change needs none; nothing was changed", disruption.RulesPath)
}
