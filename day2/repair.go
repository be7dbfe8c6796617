package day2

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/projection"
	"machine-pivot/pivot"
)

// A repair applies the machine's current MachineConfig again. So drift is found and repaired
// like any other change, by the same rules: a service that has read a drifted file must be
// reloaded when the file is restored.
//
// Drift is what Verify names: the journal's target decides, and the MachineConfig supplies
// the contents. So both must come from the same request.

// currentFile returns the machine's current MachineConfig, for a repair.
func currentFile(m *machine.Machine) (Config, error) {
	from, data, err := readCurrent(m.Host.Root)
	if from == "" || from == machineconfig.DaemonPath {
		return Config{}, fault.New(fault.Refused, "cannot repair: pivot has applied no MachineConfig to this machine").WithHint("apply one: pivot apply FILE")
	}
	if err != nil {
		err = fmt.Errorf("cannot read the MachineConfig that this machine has: %w", err)
	}
	return Config{File: from, Data: data}, err
}

// askForLast changes a request for the current MachineConfig into one for exactly what the machine
// was last asked for. It returns an error if that was not this MachineConfig.
func (a *Apply) askForLast(req *request) error {
	last := a.Progress.Content
	i := slices.IndexFunc(last.Target.Entries, func(e hostfiles.Entry) bool { return e.Path == machineconfig.RecordPath })
	have, there, err := hostfiles.Read(a.Host.Root, machineconfig.RecordPath)
	known := i >= 0
	unchanged := known && there && have.Digest == last.Target.Entries[i].Digest
	switch {
	case err != nil:
		return err
	case !expectsTarget(last, a.Progress.BootID) && !(unchanged && last.Phase == pivot.PhaseFailed): // an earlier repair may have failed
		return cannotRepair(fmt.Sprintf("what it was last asked for is %s, and not what runs", last.Phase))
	case known && !unchanged:
		return cannotRepair(machineconfig.RecordPath + ", which says what this machine has, is not as it was written")
	case !matches(req.Request, last.Target, known):
		return cannotRepair("it was last asked for something else than its MachineConfig")
	}
	req.last, req.Repair = &last.Target, true
	req.Image = last.Target.Image.Pinned()
	req.Kargs.Old, req.Kargs.New, req.Kargs.Delete = last.Target.Kargs.Old, last.Target.Kargs.New, last.Target.Kargs.Delete
	for _, e := range last.Target.Entries {
		named := slices.ContainsFunc(req.Entries, func(f hostfiles.File) bool { return f.Path == e.Path })
		if e.Removes() && !named { // undoes what the previous MachineConfig asked for
			req.Entries = append(req.Entries, hostfiles.File{Entry: e})
		}
	}
	req.leftOut = hostfiles.Default(machineconfig.LeftOutPath)
	if left, there, err := hostfiles.Read(a.Host.Root, machineconfig.LeftOutPath); err != nil || there {
		req.leftOut = left
		return err
	}
	return nil
}

func cannotRepair(why string) error {
	return fault.New(fault.Refused, "cannot repair this machine: %s", why).
		WithHint("pivot status and pivot verify say more; pivot apply FILE makes it what a MachineConfig asks for")
}

// matches reports whether a request is for a target, by image and kernel arguments. An image that is named by a tag
// matches any image, because the tag may have moved since. recorded says that the target has the record of the
// MachineConfig, as after an apply or a rollback. Then a request that names no image matches any, and the target may
// have more arguments. After a rollback, those that the deployment has and the one before lacked, for instance because
// its image has brought them.
func matches(req pivot.Request, target pivot.Target, recorded bool) bool {
	sameImage := req.Image.Same(target.Image) || req.Image.IsZero() && recorded ||
		req.Image.IsZero() == target.Image.IsZero() && req.Image.Digest == ""
	missing := func(arg string) bool { return !slices.Contains(target.Kargs.New, arg) }
	sameArguments := req.Kargs.New.Equal(target.Kargs.New) || recorded && !slices.ContainsFunc(req.Kargs.New, missing)
	return sameImage && sameArguments
}

// beforeRepair notes what differs, and keeps a copy of what the repair will replace. It returns
// an error if nothing of what differs can be repaired.
func (a *Apply) beforeRepair(ctx context.Context, c *pivot.Converger, plan pivot.Plan, decision pivot.Decision, asked request) error {
	if !plan.Changed {
		return a.nothingToRepair(ctx, c, *asked.last)
	}
	differences, err := c.Differences(ctx, *asked.last)
	if err != nil {
		return err
	}
	for _, d := range differences {
		a.Progress.Note("differs: " + d)
	}
	if decision.Action == pivot.ActionRefuse {
		return nil // nothing will be replaced
	}
	return a.keepFound(plan)
}

// nothingToRepair returns an error if a repair that has nothing to change leaves something as it
// must not be. What users have changed since the plan was made is left to the next repair.
func (a *Apply) nothingToRepair(ctx context.Context, c *pivot.Converger, target pivot.Target) error {
	differences, err := c.Failures(ctx, target)
	if err == nil && len(differences) > 0 {
		err = fault.New(fault.Refused, "cannot repair what differs: %s", strings.Join(differences, "; ")).WithHint(notRepairable)
	}
	if err == nil {
		a.Progress.Note("nothing to repair: the machine is what it was last asked for")
	}
	return err
}

// notRepairable is the remedy for what a repair cannot fix.
const notRepairable = "correct it by hand: no MachineConfig requests it, its earlier content is unknown, or only a reboot changes it"

// afterRepair warns about what still differs after a repair of the running system.
func (a *Apply) afterRepair(ctx context.Context, c *pivot.Converger, asked request) error {
	if !a.Repair {
		return nil
	}
	differences, err := c.Differences(ctx, *asked.last)
	if err == nil && len(differences) > 0 {
		a.Progress.Note("warning: it cannot be repaired: " + strings.Join(differences, "; ") + "; " + notRepairable)
	}
	return err
}

// keepFound keeps a copy of what is at the paths that a plan changes, before they change.
func (a *Apply) keepFound(plan pivot.Plan) error {
	if len(plan.Entries) == 0 {
		return nil
	}
	things := NewFoundThings()
	for _, change := range plan.Entries {
		if err := a.found(change, things); err != nil {
			return err
		}
	}
	keeper := FoundKeeper{Root: a.Host.Root, Disk: a.Host.Disk, Now: a.Progress.Now}
	dir, err := keeper.Keep(things)
	if err == nil {
		a.Progress.Note(fmt.Sprintf("what was found at %d paths is kept in %s", things.Len(), dir))
	}
	return err
}

// found collects what is at the path of a change, and the contents of a directory that something
// else replaces.
func (a *Apply) found(change pivot.EntryChange, things *FoundThings) error {
	have, there, err := a.ReadEntry(change.Path)
	if err != nil {
		return err
	}
	if !there {
		return things.Add(FoundThing{Path: change.Path})
	}
	// Outside of /etc, and where users may write, nothing is replaced that cannot be put back: a user's
	// directory that is not empty is moved aside as a whole.
	users := hostfiles.OfUsers(a.Host.Root, change.Path)
	stays := users || projection.Outside(change.Path)
	err = things.Add(FoundThing{Path: change.Path, File: &have, Stays: stays, OfUsers: users})
	if have.Kind != hostfiles.KindDirectory || change.Kind == hostfiles.KindDirectory || users {
		return err
	}
	for dirs := []string{change.Path}; err == nil && len(dirs) > 0; dirs = dirs[1:] {
		err = hostfiles.EachName(a.Host.Root, dirs[0], func(name string) error {
			f, there, err := a.ReadEntry(path.Join(dirs[0], name))
			if err != nil || !there {
				return err
			}
			if f.Kind == hostfiles.KindDirectory {
				dirs = append(dirs, f.Path)
			}
			return things.Add(FoundThing{Path: f.Path, File: &f, Stays: stays})
		})
	}
	return err
}
