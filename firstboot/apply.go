package firstboot

import (
	"bytes"
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
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/live"
	"machine-pivot/pivot"
)

// Apply brings a machine that runs from the MachineConfig that it has to another one:
// image, kernel arguments and what is below /etc in one transaction with one reboot, or,
// where no change needs one, in the running system (live.go).
//
// What the machine has is in its own /etc (encapsulated.RecordPath), committed with all
// else: who goes back to an older deployment goes back to its MachineConfig too.
type Apply struct {
	Machine
	File string // its name, for messages
	Data []byte // the MachineConfig, in JSON or YAML
	When When   // "": RebootLater
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
	defer a.closeImage()
	plan, ask, err := a.compare(ctx)
	if err != nil {
		return false, err
	}
	settings, err := a.settings()
	if err != nil {
		return false, err
	}
	if !plan.Changed {
		a.Progress.Note("nothing to do: the machine is what the MachineConfig asks for")
		a.warnOfNext(plan)
		return false, a.keep(ask.record)
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
	ask.Entries = append(ask.Entries, ask.record)
	return a.move(ctx, ask.Ask, settings, a.When == RebootNow || a.When == RebootIfNeeded)
}

// Plan works out what Run would change and writes nothing.
func (a *Apply) Plan(ctx context.Context) (pivot.Plan, error) {
	if err := a.open(); err != nil {
		return pivot.Plan{}, err
	}
	defer a.closeImage()
	plan, _, err := a.compare(ctx)
	if err == nil && live.Interrupted(a.Host.Root) {
		plan.Notes = append(plan.Notes, "a change of the running system was interrupted, and is finished first")
	}
	return plan, err
}

// applyAsk is what a MachineConfig asks of the machine, with the record of it.
type applyAsk struct {
	pivot.Ask
	record    hostfiles.File
	converger *pivot.Converger // that has compared
}

// compare works out what really differs, of which the record is no part.
func (a *Apply) compare(ctx context.Context) (pivot.Plan, applyAsk, error) {
	a.Progress.Begin(pivot.StepRead, "reading "+a.File)
	if _, err := os.Lstat(a.Host.Path(EncapsulatedPath)); !errors.Is(err, fs.ErrNotExist) {
		return pivot.Plan{}, applyAsk{}, fault.New(fault.Refused, "cannot apply a MachineConfig: the first boot is not over, %s is there", EncapsulatedPath).
			WithHint("complete it first: pivot firstboot")
	}
	ask, err := a.ask(ctx)
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

// ask is what has to be asked to go from the MachineConfig that the machine has to the
// other one.
func (a *Apply) ask(ctx context.Context) (ask applyAsk, err error) {
	judge, err := a.judge()
	if err != nil {
		return ask, err
	}
	desired, report := encapsulated.Read(a.File, a.Data, judge)
	if report.Failed() {
		return ask, report.Err("MachineConfig " + a.File)
	}
	for _, p := range report {
		a.Progress.Note(p.Text())
	}
	old, err := a.applied()
	if err != nil {
		return ask, err
	}
	if ask.Ask, err = a.asking(desired, old); err != nil {
		return ask, err
	}
	ask.ByHand = true
	removed, err := a.removed(ctx, old.Entries, desired.Entries)
	if err != nil {
		return ask, err
	}
	ask.Entries = slices.Concat(ask.Entries, removed)
	record, err := desired.Record()
	ask.record = hostfiles.NewFile(encapsulated.RecordPath, 0o600, record)
	return ask, err
}

// applied is the MachineConfig that the machine has: by its record, or, if none was ever
// applied, the one of its first boot. A machine that never had one has an empty one.
func (a *Apply) applied() (*encapsulated.Desired, error) {
	for _, path := range []string{encapsulated.RecordPath, EncapsulatedPath + closedSuffix} {
		data, err := os.ReadFile(a.Host.Path(path))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read the MachineConfig that this machine has: %w", err)
		}
		desired, report := encapsulated.Parse(data, encapsulated.Host{})
		if report.Failed() {
			return nil, fault.New(fault.Refused, "cannot use the MachineConfig that this machine has: %w", report.Err(path)).
				WithHint("move the file away; then nothing of what it asked for is removed")
		}
		return desired, nil
	}
	return &encapsulated.Desired{}, nil
}

// removed asks that what the machine's MachineConfig asked for, and the other does not,
// is as the image has it. What somebody has changed since is theirs, and stays.
func (a *Apply) removed(ctx context.Context, old, new []hostfiles.File) ([]hostfiles.File, error) {
	asked := map[string]bool{}
	for _, f := range new {
		asked[f.Path] = true
	}
	gone := slices.DeleteFunc(slices.Clone(old), func(f hostfiles.File) bool { return asked[f.Path] || f.Kind == hostfiles.KindDefault })
	target := pivot.Target{Entries: hostfiles.Entries(gone)}
	state, err := a.Host.Observe(ctx, target)
	if err != nil {
		return nil, err
	}
	changed := map[string]bool{}
	for _, change := range state.Etc.Changes(target.Entries) {
		changed[change.Path] = change.Action == pivot.ChangeReplace
	}
	var removed []hostfiles.File
	for _, f := range gone {
		stays := ""
		switch {
		case changed[f.Path]:
			stays = "somebody has changed it"
		case f.Kind == hostfiles.KindDirectory && !a.emptied(f.Path, target.Paths()):
			stays = "there is more in it"
		}
		if stays != "" {
			a.Progress.Note(fmt.Sprintf("%s %s stays, though no MachineConfig asks for it any more: %s", f.Kind, f.Path, stays))
			continue
		}
		removed = append(removed, hostfiles.Default(f.Path))
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

// keep writes the record where nothing else has to change.
func (a *Apply) keep(record hostfiles.File) error {
	path := a.Host.Path(record.Path)
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, record.Content) {
		return nil
	}
	err := hostfiles.MakeDir(a.Host.Disk, filepath.Dir(path), 0o755)
	if err == nil {
		err = hostfiles.Replace(a.Host.Disk, path, record.Content, record.Mode)
	}
	if err != nil {
		return fault.New(fault.CannotWrite, "cannot keep the record of the MachineConfig: %w", err)
	}
	return nil
}
