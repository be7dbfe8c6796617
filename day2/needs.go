package day2

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"machine-pivot/internal/disruption"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/projection"
	"machine-pivot/pivot"
)

// judged adds to a plan what its changes need, by the machine's present rules. Rules that the
// MachineConfig brings do not apply to that MachineConfig itself.
func (a *Apply) judged(plan pivot.Plan, asked request) (pivot.Plan, error) {
	if plan.Err() != nil {
		return plan, plan.Err()
	}
	if a.When == RebootNow {
		return plan.ForReboot("--reboot=now asks for one"), nil
	}
	rules, err := a.rules()
	if err != nil {
		return plan, err
	}
	needs := a.liveBlockers(plan)
	judged := plan.Judged(rules, needs...)
	if judged.Changed && judged.Reboots == 0 {
		_, _, err := a.liveChange(judged, asked)
		if u, is := errors.AsType[unrestorable](err); is {
			judged = plan.Judged(rules, append(needs, u.need())...)
		} else if err != nil {
			return plan, err
		}
	}
	return judged.WithDrain(rules, a.contents(plan.Request().Entries)), nil
}

// contents returns the contents below /etc in the running system, and as entries ask for them.
func (a *Apply) contents(entries []hostfiles.File) pivot.Contents {
	read := func(root, name string) ([]byte, error) {
		f, there, err := hostfiles.Read(root, name)
		if err == nil && there && !f.Whole() {
			err = errors.New("it is too large")
		}
		return f.Content, err
	}
	return func(name string) (before, after []byte, err error) {
		if before, err = read(a.Host.Root, name); err != nil {
			return nil, nil, err
		}
		i := slices.IndexFunc(entries, func(f hostfiles.File) bool { return f.Path == name })
		if i >= 0 && entries[i].Kind == hostfiles.KindDefault {
			after, err = read(a.Host.Path("/usr"), name)
			return before, after, err
		}
		return before, pivot.ContentOf(entries, name), nil
	}
}

// rules returns the machine's rules, or the defaults if it has none.
func (a *Apply) rules() (disruption.Rules, error) {
	data, err := hostfiles.ReadSettings(a.Host.Root, disruption.RulesPath)
	if errors.Is(err, fs.ErrNotExist) {
		return disruption.Defaults(), nil
	}
	if err != nil {
		return disruption.Rules{}, fault.New(fault.BadInput, "cannot read the rules of what needs a reboot, %s: %w", disruption.RulesPath, err).
			WithHint("correct or remove %s", disruption.RulesPath)
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

// liveBlockers returns why a plan cannot be carried out in the running system, whatever the
// rules say.
func (a *Apply) liveBlockers(plan pivot.Plan) []pivot.Need {
	var all []pivot.Need
	state := plan.From()
	if state.Pending() && !state.Default.Staged {
		all = append(all, pivot.NeedReboot("deployment", fmt.Sprintf("%s is committed and waits for its reboot; it would not have the change, so one is made in its place", state.Default.ID())))
	}
	if a.Services() == nil {
		all = append(all, pivot.NeedReboot("deployment", "it is not the system that runs"))
	}
	changes, outside := map[string]bool{}, ""
	for _, e := range plan.Entries {
		changes[e.Path] = true
	}
	if slices.ContainsFunc(plan.Entries, func(e pivot.EntryChange) bool { return projection.Outside(e.Path) }) {
		outside = a.outsideBlocker()
	}
	for _, e := range state.Etc.Of(plan.To()) { // includes the links of units
		if !changes[e.Path] {
			continue
		}
		why := outside
		if !projection.Outside(e.Path) {
			why = a.liveBlocker(state.Etc, e)
		}
		if why != "" {
			all = append(all, pivot.NeedReboot(e.Path, why))
		}
	}
	return all
}

// liveBlocker returns why an entry below /etc cannot be changed in the running system; "" if it
// can.
func (a *Apply) liveBlocker(etc pivot.Etc, want hostfiles.Entry) string {
	have, there := etc.Entries[want.Path]
	wanted := want.Kind
	if want.Removes() {
		shipped, ships := etc.Image[want.Path]
		wanted = shipped.Kind
		if !ships || want.Kind == hostfiles.KindAbsent {
			wanted = have.Kind // removed and not replaced
		}
	}
	switch {
	case want.OnDisk() != want.Path:
		return unreachable(a.Host.Root, want.OnDisk())
	case hostfiles.OfUsers(a.Host.Root, want.Path): // whatever a user has put there is moved aside
	case wanted == hostfiles.KindOther, there && have.Kind == hostfiles.KindOther:
		return "it is no file, directory or link"
	case there && (have.Kind == hostfiles.KindDirectory) != (wanted == hostfiles.KindDirectory):
		return fmt.Sprintf("a %s comes where there is a %s", wanted, have.Kind)
	case !there && want.Kind == hostfiles.KindDefault && wanted == hostfiles.KindDirectory:
		return "the image's directory comes back, with what is in it"
	}
	return unreachable(a.Host.Root, want.Path)
}

// outsideBlocker returns why nothing outside of /etc can be changed in the running system; "" if
// it can. A change that fails is taken back, which projects the present entries again. So
// these must be projected without a failure before the change.
func (a *Apply) outsideBlocker() string {
	if settled, err := projection.Settled(a.Host.Root); err != nil || !settled {
		return "not all is there that this system asks for outside of /etc: pivot project says why"
	}
	return ""
}
