package firstboot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"machine-pivot/internal/encapsulated"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/live"
	"machine-pivot/internal/varentries"
	"machine-pivot/pivot"
)

// Apply brings a machine that runs from the MachineConfig that it has to another one:
// image, kernel arguments and what is below /etc and /var in one transaction with one reboot,
// or, where no change needs one, in the running system (live.go).
//
// What the machine has is in its own /etc (encapsulated.RecordPath), committed with all
// else: who goes back to an older deployment goes back to its MachineConfig too.
type Apply struct {
	Machine
	File string // its name, for messages
	Data []byte // the MachineConfig, in JSON or YAML
	When When   // "": RebootLater
	// Unsupported is what becomes of what cannot be changed on a machine that runs.
	Unsupported encapsulated.Unsupported
	// Repair is that only what came to differ is put right: the MachineConfig is the one that
	// the machine has, whatever File and Data are (repair.go).
	Repair bool
}

// Run makes the MachineConfig's system the next boot, and reboots if that is asked for; or
// it makes it the one that runs.
// It reports whether anything had to change.
func (a *Apply) Run(ctx context.Context) (changed bool, err error) {
	changed, err = a.apply(ctx)
	err = a.stopped(ctx, err)
	if err != nil {
		a.Progress.Fail(err)
	}
	return changed, err
}

func (a *Apply) apply(ctx context.Context) (bool, error) {
	if err := a.openToChange(ctx); err != nil {
		return false, err
	}
	defer a.pulledImages().Close()
	if err := a.takeDownloaded(); err != nil {
		return false, err
	}
	plan, ask, err := a.compare(ctx)
	if err != nil {
		return false, err
	}
	settings, err := a.settings()
	if err != nil {
		return false, err
	}
	if a.Repair {
		if err := a.beforeRepair(ctx, plan, ask); err != nil || !plan.Changed {
			return false, err
		}
	}
	if !plan.Changed {
		a.Progress.Note("nothing to do: the machine is what the MachineConfig asks for")
		a.warnOfNext(plan)
		if err := a.carryHere(ask.Entries); err != nil {
			return false, err
		}
		if err := a.recordOnly(plan, ask); err != nil {
			return false, err
		}
		a.usedDownload(ctx, plan.To().Image)
		return false, nil
	}
	switch {
	case plan.Reboots == 0:
		return true, a.change(ctx, plan, ask)
	case a.When == RebootNever:
		return false, a.refuse(plan)
	}
	for _, reason := range plan.RebootReasons() {
		a.Progress.Note("a reboot is needed: " + reason)
	}
	ask.Entries = append(ask.Entries, ask.record, ask.leftOut)
	return a.move(ctx, ask.Ask, settings, a.When == RebootNow || a.When == RebootIfNeeded)
}

// Plan works out what Run would change and writes nothing.
func (a *Apply) Plan(ctx context.Context) (pivot.Plan, error) {
	if err := a.open(); err != nil {
		return pivot.Plan{}, err
	}
	defer a.pulledImages().Close()
	if err := a.takeDownloaded(); err != nil {
		return pivot.Plan{}, err
	}
	plan, ask, err := a.compare(ctx)
	plan.Notes = append(plan.Notes, ask.notes...)
	if err == nil && live.Interrupted(a.Host.Root) {
		plan.Notes = append(plan.Notes, "a change of the running system was interrupted, and is finished first")
	}
	return plan, err
}

// applyAsk is what a MachineConfig asks of the machine, with the record of it and of what
// was left out.
type applyAsk struct {
	pivot.Ask
	record, leftOut hostfiles.File
	notes           []string         // on the MachineConfig
	last            *pivot.Target    // of a repair: what the machine was last asked for
	converger       *pivot.Converger // that has compared
}

// compare works out what really differs, of which the record is no part.
func (a *Apply) compare(ctx context.Context) (pivot.Plan, applyAsk, error) {
	ask, err := a.read(ctx)
	if err != nil {
		return pivot.Plan{}, ask, err
	}
	ask.converger = a.converger()
	plan, err := ask.converger.Plan(ctx, ask.Ask)
	if err == nil {
		plan, err = a.judged(plan, ask.Entries)
	}
	// What a tag named is what was compared, and is not asked for again.
	ask.Image, ask.Packages.Source = plan.To().Image.Pinned(), plan.To().Packages.Source
	return plan, ask, err
}

// read reads the MachineConfig, and is what has to be asked for it.
func (a *Apply) read(ctx context.Context) (applyAsk, error) {
	if err := a.readRecord(); err != nil {
		return applyAsk{}, err
	}
	a.Progress.Begin(pivot.StepRead, "reading "+a.File)
	if err := a.firstBootIsOver("apply a MachineConfig"); err != nil {
		return applyAsk{}, err
	}
	return a.ask(ctx)
}

// ask is what has to be asked to go from the MachineConfig that the machine has to the
// other one.
func (a *Apply) ask(ctx context.Context) (ask applyAsk, err error) {
	judge, err := a.judge()
	if err != nil {
		return ask, err
	}
	old, takenOver, err := a.applied()
	if err != nil {
		return ask, err
	}
	judge.Has, judge.Unsupported = old, a.Unsupported
	desired, report := encapsulated.Read(a.File, a.Data, judge)
	if report.Failed() {
		return ask, report.Err("MachineConfig " + a.File)
	}
	for _, p := range report {
		ask.notes = append(ask.notes, p.Text())
		a.Progress.Note(p.Text())
	}
	if ask.leftOut, err = a.leaveOut(desired); err != nil {
		return ask, err
	}
	if ask.Ask, err = a.asking(desired, old); err != nil {
		return ask, err
	}
	ask.ByHand = true
	removed, err := a.removed(ctx, old, takenOver, desired.Entries)
	if err != nil {
		return ask, err
	}
	ask.Entries = slices.Concat(ask.Entries, removed)
	record, err := desired.Record()
	ask.record = hostfiles.NewFile(encapsulated.RecordPath, 0o600, record)
	if a.Repair && err == nil {
		err = a.sameAgain(&ask)
	}
	return ask, err
}

// removed asks that what the machine's MachineConfig asked for, and the other does not,
// is as the image has it, or in /var as it was: also the links of units, which go by what
// this system has of these. Those that the other one needs go before that. What somebody
// has changed since is theirs, and stays.
func (a *Apply) removed(ctx context.Context, old *encapsulated.Desired, takenOver bool, new []hostfiles.File) ([]hostfiles.File, error) {
	kept, err := a.keeping(old)
	if err != nil {
		return nil, err
	}
	before, err := a.carried(kept)
	if err != nil {
		return nil, err
	}
	asked := map[string]bool{}
	for _, f := range new {
		asked[f.Path] = true
	}
	had := pivot.Target{Entries: hostfiles.Entries(before), Units: old.Units}
	state, err := a.Host.Observe(ctx, had)
	if err != nil {
		return nil, err
	}
	gone := slices.DeleteFunc(state.Etc.Of(had), func(e hostfiles.Entry) bool { return asked[e.Path] || e.Kind == hostfiles.KindDefault })
	var paths []string
	for _, e := range gone {
		paths = append(paths, e.Path)
	}
	changed := map[string]bool{}
	for _, change := range state.Etc.Changes(gone) {
		// What nobody asked for, and is there again, is somebody's too.
		changed[change.Path] = change.Action == pivot.ChangeReplace || change.Action == pivot.ChangeRemove
	}
	var removed []hostfiles.File
	for _, f := range gone {
		stays := ""
		switch {
		case changed[f.Path]:
			stays = "somebody has changed it"
		case f.Kind == hostfiles.KindDirectory && !a.emptied(f.Path, paths):
			stays = "there is more in it"
		}
		if stays != "" {
			a.Progress.Note(fmt.Sprintf("%s stays, though no MachineConfig asks for it any more: %s", f.Name(), stays))
			if !varentries.Outside(f.Path) {
				continue
			} // else what the machine carries must not have it, and its projection leaves it
		}
		file, err := a.without(f.Path, takenOver)
		if err != nil {
			return nil, err
		}
		removed = append(removed, file)
	}
	return removed, nil
}

// emptied reports whether a directory has nothing but what is removed.
func (a *Apply) emptied(dir string, removed []string) bool {
	err := filepath.WalkDir(a.Host.Path(dir), func(name string, _ fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && !slices.Contains(removed, "/"+strings.TrimPrefix(strings.TrimPrefix(name, a.Host.Path("/")), "/")) {
			err = errors.New("there is more")
		}
		return err
	})
	return err == nil
}
