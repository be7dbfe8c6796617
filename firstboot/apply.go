package firstboot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"machine-pivot/day2/live"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/mcfile"
	"machine-pivot/internal/projection"
	"machine-pivot/pivot"
)

// Apply moves a machine from its current MachineConfig to another one: image, kernel
// arguments and entries below /etc and /var in one transaction with one reboot, or, if no
// change needs a reboot, in the running system (live.go).
//
// The current MachineConfig is recorded in the deployment's own /etc (mcfile.RecordPath)
// and committed with everything else, so a rollback to an older deployment also goes back to
// the MachineConfig of that deployment.
type Apply struct {
	Machine
	File string // the MachineConfig's name, for messages
	Data []byte // the MachineConfig, in JSON or YAML
	When When   // "": RebootLater
	// Unsupported selects what to do about changes that only an installation can make.
	Unsupported mcfile.Unsupported
	// Repair only repairs drift. It applies the machine's current MachineConfig and ignores
	// File and Data (repair.go).
	Repair bool
}

// Run makes the MachineConfig's system the next boot, and reboots if When asks for that; or
// it changes the running system. It reports whether anything had to change.
func (a *Apply) Run(ctx context.Context) (changed bool, err error) {
	changed, err = a.apply(ctx)
	err = a.explainStop(ctx, err)
	a.Progress.End(err)
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
	a.runResult().Drain = *plan.Drain
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
		a.warnAboutNextBoot(plan)
		if err := a.carryInRunningSystem(ask.Entries); err != nil {
			return false, err
		}
		if err := a.recordOnly(plan, ask); err != nil {
			return false, err
		}
		a.dropUsedDownload(ctx, plan.To().Image, false)
		return false, nil
	}
	switch {
	case plan.Reboots == 0:
		return true, a.applyLive(ctx, plan, ask)
	case a.When == RebootNever:
		return false, a.refuse(plan)
	}
	for _, reason := range plan.RebootReasons() {
		a.Progress.Note("a reboot is needed: " + reason)
	}
	ask.Entries = append(ask.Entries, ask.record, ask.leftOut)
	return a.move(ctx, ask.Ask, settings, a.When == RebootNow || a.When == RebootIfNeeded)
}

// Plan returns what Run would change. It writes nothing.
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

// applyAsk is what a MachineConfig asks of the machine, with the record of the MachineConfig
// and the list of what was left out.
type applyAsk struct {
	pivot.Ask
	record, leftOut hostfiles.File
	notes           []string         // from the validation of the MachineConfig
	last            *pivot.Target    // for a repair: what the machine was last asked for
	converger       *pivot.Converger // the one that compare used
}

// compare plans the change. The record is not part of the plan, so it never counts as a change.
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
	// Pin what the tags resolved to: what was compared is what will be deployed.
	ask.Image, ask.Packages.Source = plan.To().Image.Pinned(), plan.To().Packages.Source
	return plan, ask, err
}

// read reads the MachineConfig and returns what it asks of the machine.
func (a *Apply) read(ctx context.Context) (applyAsk, error) {
	if err := a.readRecord(); err != nil {
		return applyAsk{}, err
	}
	a.Progress.Begin(pivot.StepRead, "reading "+a.File)
	if err := a.requireClosedFirstBoot("apply a MachineConfig"); err != nil {
		return applyAsk{}, err
	}
	return a.ask(ctx)
}

// ask returns what to ask for to get from the current MachineConfig to the new one.
func (a *Apply) ask(ctx context.Context) (ask applyAsk, err error) {
	facts, err := a.hostFacts()
	if err != nil {
		return ask, err
	}
	old, takenOver, err := a.applied(facts)
	if err != nil {
		return ask, err
	}
	facts.Has, facts.Unsupported = old, a.Unsupported
	desired, report := mcfile.Read(a.File, a.Data, facts)
	if report.Failed() {
		return ask, report.Err("MachineConfig " + a.File)
	}
	for _, p := range report {
		ask.notes = append(ask.notes, p.Text())
		a.Progress.Note(p.Text())
	}
	a.runResult().LeftOut = desired.LeftOut
	if ask.leftOut, err = a.leftOutFile(desired); err != nil {
		return ask, err
	}
	if ask.Ask, err = a.askFor(desired, old); err != nil {
		return ask, err
	}
	ask.ByHand = true
	removed, err := a.removed(ctx, old, takenOver, desired.Entries)
	if err != nil {
		return ask, err
	}
	ask.Entries = slices.Concat(ask.Entries, removed)
	record, err := desired.Record()
	ask.record = hostfiles.NewFile(mcfile.RecordPath, 0o600, record)
	ask.MachineConfig = pivot.MachineConfig{Name: desired.Name, Digest: ask.record.Digest}
	a.runResult().MachineConfig = new(ask.MachineConfig)
	if a.Repair && err == nil {
		err = a.askForLast(&ask)
	}
	return ask, err
}

// removed returns entries that undo what the current MachineConfig, old, asked for and the
// new one does not: below /etc they restore the image's default, in /var what was there
// before. This includes the links of units, as the running system's unit files define them;
// links that the new MachineConfig needs take precedence. What has been changed locally since
// stays.
func (a *Apply) removed(ctx context.Context, old *mcfile.Desired, takenOver bool, new []hostfiles.File) ([]hostfiles.File, error) {
	kept, err := a.entriesOf(old)
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
		// ChangeRemove: old wanted nothing at this path, so what exists now was made locally.
		changed[change.Path] = change.Action == pivot.ChangeReplace || change.Action == pivot.ChangeRemove
	}
	var removed []hostfiles.File
	for _, f := range gone {
		stays := ""
		switch {
		case changed[f.Path]:
			stays = "somebody has changed it"
		case f.Kind == hostfiles.KindDirectory && !a.containsOnly(f.Path, paths):
			stays = "there is more in it"
		}
		if stays != "" {
			a.Progress.Note(fmt.Sprintf("%s stays, though no MachineConfig asks for it any more: %s", f.Name(), stays))
			if !projection.Outside(f.Path) {
				continue
			} // otherwise remove it from what the machine carries; the projection leaves the changed file
		}
		file, err := a.replacementAt(f.Path, takenOver)
		if err != nil {
			return nil, err
		}
		removed = append(removed, file)
	}
	return removed, nil
}

// containsOnly reports whether a directory contains nothing but the given paths, of which it
// must be one itself.
func (a *Apply) containsOnly(dir string, paths []string) bool {
	err := filepath.WalkDir(a.Host.Path(dir), func(name string, _ fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && !slices.Contains(paths, "/"+strings.TrimPrefix(strings.TrimPrefix(name, a.Host.Path("/")), "/")) {
			err = errors.New("there is more")
		}
		return err
	})
	return err == nil
}
