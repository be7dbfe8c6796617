package firstboot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"machine-pivot/internal/encapsulated"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/found"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/projection"
	"machine-pivot/internal/varentries"
	"machine-pivot/pivot"
)

// A repair applies the MachineConfig that the machine has once more: so what differs is worked
// out, and put right, as any change is, by the same rules. A service that has read what
// somebody wrote has to be told of what comes back, too.
//
// What differs is what a verification names: the journal's target decides, and the
// MachineConfig has the contents for it. So the two must be of one request.

// readRecord makes the MachineConfig of a repair the one that the machine has.
func (a *Apply) readRecord() error {
	if !a.Repair {
		return nil
	}
	_, from, err := a.recorded()
	if err != nil {
		return err
	}
	if from == "" || from == daemonRecord {
		return fault.New(fault.Refused, "cannot repair: pivot has applied no MachineConfig to this machine").WithHint("apply one: pivot apply FILE")
	}
	a.File = from
	a.Data, err = os.ReadFile(a.Host.Path(from))
	return err
}

// sameAgain makes an ask for the MachineConfig that the machine has one for just what it was
// last asked for. It is an error if that was something else.
func (a *Apply) sameAgain(ask *applyAsk) error {
	last := a.Progress.Record
	i := slices.IndexFunc(last.Target.Entries, func(e hostfiles.Entry) bool { return e.Path == encapsulated.RecordPath })
	have, there, err := hostfiles.Read(a.Host.Root, encapsulated.RecordPath)
	known := i >= 0
	itself := known && there && have.Digest == last.Target.Entries[i].Digest
	switch {
	case err != nil:
		return err
	case !reached(last, a.Progress.BootID) && !(itself && last.Phase == pivot.PhaseFailed): // an earlier repair
		return notSame(fmt.Sprintf("what it was last asked for is %s, and not what runs", last.Phase))
	case known && !itself:
		return notSame(encapsulated.RecordPath + ", which says what this machine has, is not as it was written")
	case !asksFor(ask.Ask, last.Target):
		return notSame("it was last asked for something else than its MachineConfig")
	}
	ask.last = &last.Target
	ask.Image = last.Target.Image.Pinned()
	ask.Kargs.Old, ask.Kargs.Delete = last.Target.Kargs.Old, last.Target.Kargs.Delete
	for _, e := range last.Target.Entries {
		named := slices.ContainsFunc(ask.Entries, func(f hostfiles.File) bool { return f.Path == e.Path })
		if e.Removes() && !named { // what the MachineConfig before asked for
			ask.Entries = append(ask.Entries, hostfiles.File{Entry: e})
		}
	}
	ask.leftOut = hostfiles.Default(encapsulated.LeftOutPath)
	if left, there, err := hostfiles.Read(a.Host.Root, encapsulated.LeftOutPath); err != nil || there {
		ask.leftOut = left
		return err
	}
	return nil
}

func notSame(why string) error {
	return fault.New(fault.Refused, "cannot repair this machine: %s", why).
		WithHint("pivot status and pivot verify say more; pivot apply FILE makes it what a MachineConfig asks for")
}

// asksFor reports whether an ask is that for a target, by image and kernel arguments. What a
// tag names now may be another image.
func asksFor(ask pivot.Ask, target pivot.Target) bool {
	sameImage := ask.Image.Same(target.Image) || ask.Image.IsZero() == target.Image.IsZero() && ask.Image.Digest == ""
	return sameImage && ask.Kargs.New.Equal(target.Kargs.New)
}

// beforeRepair says what differs, and keeps what is there in its place. If nothing that could
// be put right differs, but something else does, that is an error.
func (a *Apply) beforeRepair(ctx context.Context, plan pivot.Plan, ask applyAsk) error {
	differences, err := ask.converger.Differences(ctx, *ask.last)
	switch {
	case err != nil:
		return err
	case !plan.Changed && len(differences) > 0:
		return fault.New(fault.Refused, "cannot repair what differs: %s", strings.Join(differences, "; ")).WithHint(byHandHint)
	case !plan.Changed:
		a.Progress.Note("nothing to repair: the machine is what it was last asked for")
		return nil
	}
	for _, d := range differences {
		a.Progress.Note("differs: " + d)
	}
	if a.When == RebootNever && plan.Reboots > 0 {
		return a.refuse(plan)
	}
	return a.keepFound(plan)
}

// byHandHint is the remedy for what a repair cannot put right.
const byHandHint = "put it right by hand: it is no entry of the MachineConfig, nobody has kept what was there, or only a reboot changes it"

// afterRepair names what differs still, behind a repair of the running system.
func (a *Apply) afterRepair(ctx context.Context, ask applyAsk) error {
	if !a.Repair {
		return nil
	}
	differences, err := ask.converger.Differences(ctx, *ask.last)
	if err == nil && len(differences) > 0 {
		a.Progress.Note("warning: it cannot be repaired: " + strings.Join(differences, "; ") + "; " + byHandHint)
	}
	return err
}

// keepFound keeps what stands where a plan changes something, before it does.
func (a *Apply) keepFound(plan pivot.Plan) error {
	if len(plan.Entries) == 0 {
		return nil
	}
	var things []found.Thing
	for _, change := range plan.Entries {
		more, err := a.found(change)
		if err != nil {
			return err
		}
		things = append(things, more...)
	}
	keeper := found.Keeper{Root: a.Host.Root, Disk: a.Host.Disk, Now: a.Progress.Now}
	dir, err := keeper.Keep(things)
	if err == nil {
		a.Progress.Note(fmt.Sprintf("what was found at %d paths is kept in %s", len(things), dir))
	}
	return err
}

// found is what stands at the path of a change; of a directory that makes room for something
// else all that is in it, too.
func (a *Apply) found(change pivot.EntryChange) (things []found.Thing, err error) {
	have, there, err := a.standing(change.Path)
	if err != nil || !there {
		return []found.Thing{{Path: change.Path}}, err
	}
	things = []found.Thing{{Path: change.Path, File: &have}}
	if have.Kind != hostfiles.KindDirectory || change.Kind == hostfiles.KindDirectory {
		return things, nil
	}
	top := a.Host.Path(change.Path)
	err = filepath.WalkDir(top, func(name string, _ fs.DirEntry, err error) error {
		if name == top || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		f, there, err := a.standing(change.Path + strings.TrimPrefix(name, top))
		if there {
			things = append(things, found.Thing{Path: f.Path, File: &f})
		}
		return err
	})
	return things, err
}

// standing is what stands at the path of an entry, with what locks a password.
func (m *Machine) standing(name string) (f hostfiles.File, there bool, err error) {
	switch {
	case varentries.Outside(name):
		return projection.Look(m.Host.Root, name)
	case hostfiles.Entry{Path: name}.OnDisk() != name:
		return hostfiles.LineOfPassword(m.Host.Root, name)
	}
	return hostfiles.Read(m.Host.Root, name)
}
