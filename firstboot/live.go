package firstboot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
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

// change carries out a plan that needs no reboot, in the running system.
func (a *Apply) change(ctx context.Context, plan pivot.Plan, ask applyAsk) error {
	files, err := ask.converger.Live(ask.Ask, plan)
	if err != nil {
		return err
	}
	c := live.Change{BootID: a.Progress.BootID, Actions: plan.Actions, Record: ask.record, Target: ask.reached(plan)}
	if files, c.Projects, err = a.carrying(files, ask.Entries); err != nil {
		return err
	}
	if c.Entries, err = a.entries(files); err != nil {
		return err
	}
	if c.Projects {
		if c.Drifted, err = a.drifted(plan.From().Etc.Accounts); err != nil {
			return err
		}
	}
	a.Progress.Begin(pivot.StepCommit, fmt.Sprintf("changing the running system without a reboot: %d entries", len(plan.Entries)))
	if err := a.runner().Apply(ctx, c); err != nil {
		return err
	}
	a.Progress.Note("the running system is what the MachineConfig asks for; nothing needs a reboot")
	a.usedDownload(ctx, plan.To().Image)
	return errors.Join(a.keep(ask.leftOut), a.afterRepair(ctx, ask))
}

// carrying are entries that change with those by which the system carries them in place of
// those that are not below /etc; projects says whether there are any.
func (a *Apply) carrying(changed, asked []hostfiles.File) (below []hostfiles.File, projects bool, err error) {
	below = slices.DeleteFunc(slices.Clone(changed), func(f hostfiles.File) bool { return varentries.Outside(f.Path) })
	carriers, err := a.carriers(asked, len(below) < len(changed))
	return append(below, carriers...), len(carriers) > 0, err
}

// drifted is what stands outside of /etc otherwise than the system asks.
func (a *Apply) drifted(accounts hostfiles.Accounts) (all []live.Entry, err error) {
	found, err := projection.Drifted(a.Host.Root, accounts)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		all = append(all, live.Entry{Path: name, Old: found[name]})
	}
	return all, err
}

// entries are what stands at the paths of files, and what shall, with the directories
// that are made for them.
func (a *Apply) entries(files []hostfiles.File) ([]live.Entry, error) {
	var all []live.Entry
	known := map[string]bool{}
	for _, f := range files {
		known[f.Path] = true
	}
	for _, f := range files {
		e, err := a.entry(f)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
		for dir := path.Dir(f.OnDisk()); e.New != nil && !known[dir]; dir = path.Dir(dir) {
			known[dir] = true
			if _, err := os.Lstat(a.Host.Path(dir)); err == nil {
				break
			}
			made := hostfiles.NewDirectory(dir, 0o755)
			all = append(all, live.Entry{Path: dir, New: &made})
		}
	}
	return all, nil
}

// entry is what stands at the path of a file, and what shall.
func (a *Apply) entry(f hostfiles.File) (live.Entry, error) {
	if f.OnDisk() != f.Path {
		return a.passwordEntry(f)
	}
	e := live.Entry{Path: f.Path, New: &f}
	switch f.Kind {
	case hostfiles.KindAbsent:
		e.New = nil
	case hostfiles.KindDefault:
		shipped, ships, err := hostfiles.Read(a.Host.Path("/usr"), f.Path)
		if err != nil {
			return e, err
		}
		e.New = nil
		if ships {
			e.New = &shipped
		}
	}
	old, there, err := hostfiles.Read(a.Host.Root, f.Path)
	if there {
		e.Old = &old
	}
	return e, err
}

// passwordEntry is entry for a password. One that nobody asks for is locked, whatever the image
// has; what locked it before comes back if the change is taken back.
func (a *Apply) passwordEntry(f hostfiles.File) (live.Entry, error) {
	e := live.Entry{Path: f.Path}
	old, there, err := hostfiles.LineOfPassword(a.Host.Root, f.Path)
	if there {
		e.Old = &old
	}
	if f.Kind == hostfiles.KindPassword {
		e.New = &f
		if err == nil && !there {
			err = fault.New(fault.Refused, "cannot set the %s: /etc/shadow has no line for this user", f.Name()).WithHint("make the user first; nothing was changed")
		}
	}
	return e, err
}

// services are those of the running system; nil if the machine is not what runs.
func (m *Machine) services() live.Services {
	if m.Systemd == nil && m.Host.Runs() {
		return m.Host.Services()
	}
	return m.Systemd
}

// runner carries out changes of the running system.
func (m *Machine) runner() *live.Runner {
	return &live.Runner{
		Root: m.Host.Root, Disk: m.Host.Disk, Services: m.services(), Outside: outsideHere{m}, BootID: m.Progress.BootID, Note: m.Progress.Note,
		Arrived: func(c live.Change) error { return m.arrived(c.Target) },
	}
}

// arrived makes a target, which the running system has reached, what the machine was last
// asked for.
func (m *Machine) arrived(target pivot.Target) error {
	if r := m.Progress.Record; r.Phase == pivot.PhaseDone && r.Target.Same(target) {
		return nil
	}
	m.Progress.Start(1, m.Progress.BootID, target)
	return m.Progress.Enter(pivot.PhaseDone, m.Progress.BootID)
}

// finishLive finishes a change of the running system that was interrupted, and reports
// whether there was one. In an initramfs it is left to the system.
func (m *Machine) finishLive(ctx context.Context) (found bool, err error) {
	if _, early := m.Place.(Initramfs); early {
		return false, nil
	}
	if m.services() == nil {
		if live.Interrupted(m.Host.Root) {
			return false, fault.New(fault.Refused, "cannot change this machine: a change of its running system was interrupted").
				WithHint("finish it on the machine itself: pivot apply --finish")
		}
		return false, nil
	}
	return m.runner().Finish(ctx)
}

// Finish finishes a change of the running system that was interrupted, if one was, and
// reports whether.
func (m *Machine) Finish(ctx context.Context) (found bool, err error) {
	m.Progress.Boot = m.Host.BootTimes(ctx)
	if err = m.open(); err == nil {
		m.Progress.Begin(pivot.StepCommit, "looking for a change of the running system that was interrupted")
		found, err = m.finishLive(ctx)
	}
	if err = m.stopped(ctx, err); err != nil {
		m.Progress.Fail(err)
		return found, err
	}
	if !found {
		m.Progress.Note("nothing to finish: no change was interrupted")
	}
	return found, nil
}
