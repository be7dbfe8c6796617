package day2

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"

	"machine-pivot/internal/disruption"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/projection"
	"machine-pivot/pivot"
)

// applyLive carries out a plan that needs no reboot, in the running system.
func (a *Apply) applyLive(ctx context.Context, options RunOptions, converger *pivot.Converger, plan pivot.Plan, asked request) error {
	if err := converger.CheckLive(plan); err != nil {
		return err
	}
	c, notes, err := a.liveChange(plan, asked)
	if u, is := errors.AsType[unrestorable](err); is {
		err = u.changedMeanwhile()
	}
	if err != nil {
		return err
	}
	for _, note := range notes {
		a.Progress.Note(note)
	}
	if err := a.Joined().Before(ctx, pivot.StepReady, &plan); err != nil {
		return err
	}
	a.Progress.Begin(pivot.StepCommit, fmt.Sprintf("changing the running system without a reboot: %d entries", len(plan.Entries)))
	if err := runner(a.Machine).Apply(ctx, c); err != nil {
		return err
	}
	a.Report().EndChanged(machine.OutcomeLive)
	a.Progress.Note("the running system is what the MachineConfig asks for; nothing needs a reboot")
	dropUsedDownload(ctx, a.Machine, plan.To().Image, options.Downloaded, true)
	return errors.Join(saveRecord(a.Machine, asked.leftOut), a.afterRepair(ctx, converger, asked))
}

// liveChange returns the change that carries out a plan in the running system, with the notes of addOld.
// It writes nothing. The error is an unrestorable if the change could not be taken back.
func (a *Apply) liveChange(plan pivot.Plan, asked request) (c LiveChange, notes []string, err error) {
	c = LiveChange{BootID: a.Progress.BootID, Actions: plan.Actions, Record: asked.record, Target: asked.reached(plan)}
	files, err := plan.Changing()
	if err != nil {
		return c, nil, err
	}
	if files, c.Projects, err = a.withCarriers(files, asked.Entries); err != nil {
		return c, nil, err
	}
	if c.Entries, err = a.liveEntries(files); err != nil {
		return c, nil, err
	}
	var drifted []hostfiles.Entry
	if c.Projects {
		if drifted, err = projection.Drifted(a.Host.Root, plan.From().Etc.Accounts); err != nil {
			return c, nil, err
		}
	}
	notes, err = a.addOld(&c, drifted)
	return c, notes, err
}

// withCarriers returns the changed entries below /etc, with the entries that carry those outside
// of /etc in their place. projects reports whether there are any. asked are all entries that
// are asked for.
func (a *Apply) withCarriers(changed, asked []hostfiles.File) (below []hostfiles.File, projects bool, err error) {
	below = slices.DeleteFunc(slices.Clone(changed), func(f hostfiles.File) bool { return projection.Outside(f.Path) })
	carriers, err := a.Carriers(asked, len(below) < len(changed))
	return append(below, carriers...), len(carriers) > 0, err
}

// liveEntries returns the new entry at the path of each file, and the parent directories that are
// missing.
func (a *Apply) liveEntries(files []hostfiles.File) ([]LiveEntry, error) {
	var all []LiveEntry
	known := hostfiles.Paths(files)
	for _, f := range files {
		e, err := a.liveEntry(f)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
		for dir := path.Dir(f.OnDisk()); e.New != nil && !known[dir]; dir = path.Dir(dir) {
			known[dir] = true
			if _, err := os.Lstat(a.Host.Path(dir)); err == nil {
				break
			}
			all = append(all, LiveEntry{Path: dir, New: new(hostfiles.NewDirectory(dir, 0o755))})
		}
	}
	return all, nil
}

// liveEntry returns the new entry at the path of a file; for a password, also the old one.
func (a *Apply) liveEntry(f hostfiles.File) (LiveEntry, error) {
	if f.OnDisk() != f.Path {
		return a.passwordEntry(f)
	}
	e := LiveEntry{Path: f.Path, New: &f}
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
	return e, nil
}

// passwordEntry is liveEntry for a password. A password that is not asked for any more is locked,
// whatever the image has. Taking the change back restores the exact field in /etc/shadow, also
// of a locked password.
func (a *Apply) passwordEntry(f hostfiles.File) (LiveEntry, error) {
	e := LiveEntry{Path: f.Path}
	old, there, err := hostfiles.LineOfPassword(a.Host.Root, f.Path)
	if there {
		e.Old = &old
	}
	if f.Kind == hostfiles.KindPassword {
		e.New = &f
		if err == nil && !there {
			err = fault.New(fault.Refused, "cannot set the %s: /etc/shadow has no line for this user", f.Name()).WithHint("make the user first, with useradd; nothing was changed")
		}
	}
	return e, err
}

// runner returns the LiveRunner that changes the running system.
func runner(m *machine.Machine) *LiveRunner {
	return &LiveRunner{
		Root: m.Host.Root, Disk: m.Host.Disk, Services: m.Services(), BootID: m.Progress.BootID, Note: m.Progress.Note,
		Project: func() error {
			p := m.Projector(m.Progress.Note)
			p.Stays = func(string) {} // these notes were given when the change was planned
			_, err := machine.Project(p)
			return err
		},
		PutBack: m.Projector(m.Progress.Note).PutBack,
		Arrived: func(c LiveChange) error { return recordTarget(m, c.Target) },
		Acted:   func(a disruption.Action) { m.Report().Actions = append(m.Report().Actions, a) },
	}
}

// recordTarget records in the journal a target that the running system has reached, as what the
// machine was last asked for.
func recordTarget(m *machine.Machine, target pivot.Target) error {
	if r := m.Progress.Content; r.Phase == pivot.PhaseDone && r.Target.Same(target) {
		return nil
	}
	m.Progress.Start(1, m.Progress.BootID, target)
	return m.Progress.Enter(pivot.PhaseDone, m.Progress.BootID)
}

// finishLive finishes a change of the running system that was interrupted, and reports whether
// there was one. An initramfs leaves that to the started system.
func finishLive(ctx context.Context, m *machine.Machine) (found bool, err error) {
	if !m.Where().Started() {
		return false, nil
	}
	if m.Services() == nil {
		if LiveInterrupted(m.Host.Root) {
			return false, fault.New(fault.Refused, "cannot change this machine: a change of its running system was interrupted").
				WithHint("finish it on the machine itself: pivot apply --finish")
		}
		return false, nil
	}
	if found, err = runner(m).Finish(ctx); found && err == nil {
		m.Report().EndChanged(machine.OutcomeLive)
	}
	return found, err
}

// Finish finishes a change of the running system that was interrupted, and reports whether
// there was one.
func Finish(ctx context.Context, m *machine.Machine) (found bool, err error) {
	m.Progress.Boot = m.Host.BootTimes(ctx)
	if err = m.Open(); err == nil {
		m.Progress.Begin(pivot.StepCommit, "looking for a change of the running system that was interrupted")
		found, err = finishLive(ctx, m)
	}
	if err == nil && !found {
		m.Progress.Note("nothing to finish: no change was interrupted")
	}
	return found, end(ctx, m, err)
}
