package firstboot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/live"
	"machine-pivot/internal/projection"
	"machine-pivot/internal/varentries"
	"machine-pivot/pivot"
)

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
