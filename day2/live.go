package day2

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"

	"machine-pivot/day2/live"
	"machine-pivot/internal/budget"
	"machine-pivot/internal/disruption"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/projection"
	"machine-pivot/pivot"
)

// applyLive carries out a plan that needs no reboot, in the running system.
func (a *Apply) applyLive(ctx context.Context, prepared Prepared, converger *pivot.Converger, plan pivot.Plan, asked request) error {
	files, err := converger.Live(plan)
	if err != nil {
		return err
	}
	c := live.Change{BootID: a.Progress.BootID, Actions: plan.Actions, Record: asked.record, Target: asked.reached(plan)}
	if files, c.Projects, err = a.withCarriers(files, asked.Entries); err != nil {
		return err
	}
	if c.Entries, err = a.liveEntries(files); err != nil {
		return err
	}
	if c.Projects {
		if c.Drifted, err = a.driftedOutside(plan.From().Etc.Accounts); err != nil {
			return err
		}
	}
	a.Progress.Begin(pivot.StepCommit, fmt.Sprintf("changing the running system without a reboot: %d entries", len(plan.Entries)))
	if err := runner(a.Machine).Apply(ctx, c); err != nil {
		return err
	}
	a.Report().EndChanged(machine.OutcomeLive)
	a.Progress.Note("the running system is what the MachineConfig asks for; nothing needs a reboot")
	dropUsedDownload(ctx, a.Machine, plan.To().Image, prepared.Downloaded, true)
	return errors.Join(saveRecord(a.Machine, asked.leftOut), a.afterRepair(ctx, converger, asked))
}

// withCarriers returns the changed entries below /etc, with the entries that carry those outside
// of /etc in their place. projects reports whether there are any. asked are all entries that
// are asked for.
func (a *Apply) withCarriers(changed, asked []hostfiles.File) (below []hostfiles.File, projects bool, err error) {
	below = slices.DeleteFunc(slices.Clone(changed), func(f hostfiles.File) bool { return projection.Outside(f.Path) })
	carriers, err := a.Carriers(asked, len(below) < len(changed))
	return append(below, carriers...), len(carriers) > 0, err
}

// driftedOutside returns what is outside of /etc and differs from what the system carries.
func (a *Apply) driftedOutside(accounts hostfiles.Accounts) (all []live.Entry, err error) {
	found, err := projection.Drifted(a.Host.Root, accounts)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		all = append(all, live.Entry{Path: name, Old: found[name]})
	}
	return all, err
}

// liveEntries returns the old and the new entry at the path of each file, and the parent
// directories that are missing.
func (a *Apply) liveEntries(files []hostfiles.File) ([]live.Entry, error) {
	var all []live.Entry
	known := hostfiles.Paths(files)
	room := budget.New(maxPutBack, "bytes of files to be put back")
	for _, f := range files {
		e, err := a.liveEntry(f)
		if err == nil {
			err = a.boundOld(&e, room)
		}
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

// maxPutBack limits the contents that a change of the running system holds in memory to put them back,
// in bytes.
const maxPutBack = 64 << 20

// boundOld takes the room for the content that an entry replaces. Users must not be able to stop a
// change, so a content of theirs for which there is no room is not put back.
func (a *Apply) boundOld(e *live.Entry, room *budget.Budget) error {
	if e.Old == nil {
		return nil
	}
	size := int64(len(e.Old.Content))
	err := room.Take(size)
	if err == nil {
		return nil
	}
	if hostfiles.OfUsers(a.Host.Root, e.Path) {
		room.Return(size)
		e.Old = nil
		return nil
	}
	return fault.New(fault.BadInput, "cannot change %s without a reboot: what the change replaces is too large to be put back: %w", e.Path, err).
		WithHint("move it away, or apply with --reboot=now")
}

// liveEntry returns the old and the new entry at the path of a file.
func (a *Apply) liveEntry(f hostfiles.File) (live.Entry, error) {
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
	replaced := old.Whole() && (old.Kind == hostfiles.KindDirectory) == (f.Kind == hostfiles.KindDirectory)
	switch {
	case !there:
	case !replaced && hostfiles.OfUsers(a.Host.Root, f.Path): // it is moved aside, and stays there
	case old.Whole():
		e.Old = &old
	default:
		err = fault.New(fault.Refused, "cannot change %s without a reboot: what stands there is too large to be put back", f.Path).
			WithHint("move it away, or apply with --reboot=now")
	}
	return e, err
}

// passwordEntry is liveEntry for a password. A password that is not asked for any more is locked,
// whatever the image has. Taking the change back restores the exact field in /etc/shadow, also
// of a locked password.
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

// runner returns the live.Runner that changes the running system.
func runner(m *machine.Machine) *live.Runner {
	return &live.Runner{
		Root: m.Host.Root, Disk: m.Host.Disk, Services: m.Services(), BootID: m.Progress.BootID, Note: m.Progress.Note,
		Project: func() error {
			_, err := m.Project(func(string) {}) // the notes on what stays were given when the change was planned
			return err
		},
		PutBack: (&projection.Projector{Root: m.Host.Root, Disk: m.Host.Disk}).PutBack,
		Arrived: func(c live.Change) error { return recordTarget(m, c.Target) },
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
		if live.Interrupted(m.Host.Root) {
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
