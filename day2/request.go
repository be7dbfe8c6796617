package day2

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig"
	"machine-pivot/internal/projection"
	"machine-pivot/pivot"
)

// Config is a MachineConfig in a file.
type Config struct {
	File string // its name, for messages
	Data []byte // in YAML or JSON
}

// request is what a MachineConfig asks of the machine.
type request struct {
	pivot.Request
	record, leftOut hostfiles.File   // of the MachineConfig, and of what it leaves out
	digest          hostfiles.Digest // of the MachineConfig's file
	notes           []string         // from the validation of the MachineConfig
	last            *pivot.Target    // for a repair: what the machine was last asked for
}

// request reads the MachineConfig and returns what to ask for, to get from the current
// MachineConfig to this one.
func (a *Apply) request(options RunOptions) (r request, err error) {
	config, err := a.config(options)
	if err != nil {
		return r, err
	}
	a.Progress.Begin(pivot.StepRead, "reading "+config.File)
	if err := a.RequireClosedFirstBoot("apply a MachineConfig"); err != nil {
		return r, err
	}
	facts, err := a.Facts()
	if err != nil {
		return r, err
	}
	old, takenOver, err := current(a.Machine, facts)
	if err != nil {
		return r, err
	}
	facts.Has, facts.Unsupported = old, a.Unsupported
	desired, report := machineconfig.Read(config.File, config.Data, facts)
	if report.Failed() {
		return r, report.Err("MachineConfig " + config.File)
	}
	for _, p := range report {
		r.notes = append(r.notes, p.Text())
		a.Progress.Note(p.Text())
	}
	a.Report().LeftOut = desired.LeftOut
	if r.leftOut, err = a.leftOutFile(config.File, desired); err != nil {
		return r, err
	}
	if r.Request, err = a.Request(desired, old); err != nil {
		return r, err
	}
	removed, err := a.removed(old, takenOver, desired.Entries)
	if err != nil {
		return r, err
	}
	record, err := desired.Record()
	if err != nil {
		return r, err
	}
	r.record, r.digest = hostfiles.NewFile(machineconfig.RecordPath, 0o600, record), hostfiles.DigestOf(config.Data)
	r.Entries = slices.Concat(r.Entries, removed)
	r.MachineConfig = pivot.MachineConfig{Name: desired.Name, Digest: r.record.Digest}
	r.ByHand, r.NeverReboot = true, a.When == RebootNever
	a.Report().MachineConfig = new(r.MachineConfig)
	if a.Repair {
		err = a.askForLast(&r)
	}
	r.OwnEntries = []hostfiles.File{r.record, r.leftOut}
	return r, err
}

// config returns the MachineConfig to be applied.
func (a *Apply) config(options RunOptions) (Config, error) {
	switch {
	case a.Repair:
		return currentFile(a.Machine)
	case a.Config.Data == nil && options.Downloaded:
		return downloadedConfig(a.Machine)
	}
	return a.Config, nil
}

// leftOutFile returns the file that lists what is left out of a MachineConfig; if nothing is
// left out, the entry that removes the file. With machineconfig.Replace it returns an error
// instead of leaving anything out.
func (a *Apply) leftOutFile(name string, desired *machineconfig.MachineConfig) (hostfiles.File, error) {
	if len(desired.LeftOut) == 0 {
		return hostfiles.Default(machineconfig.LeftOutPath), nil
	}
	if a.Unsupported == machineconfig.Replace {
		return hostfiles.File{}, fault.New(fault.Replace, "this machine must be replaced: only an installation can make it what MachineConfig %s asks for: %s",
			name, strings.Join(desired.LeftOut, ", ")).
			WithHint("install a machine anew from the MachineConfig; nothing was changed here")
	}
	names, err := json.MarshalIndent(desired.LeftOut, "", "  ")
	return hostfiles.NewFile(machineconfig.LeftOutPath, 0o644, append(names, '\n')), err
}

// removed returns entries that undo what old, the current MachineConfig, asked for and the new one does not. They
// restore the image's default below /etc, and the content before in /var. This includes the links of units, as the
// running system's unit files define them; links that the new MachineConfig needs take precedence. What has been
// changed locally since stays.
func (a *Apply) removed(old *machineconfig.MachineConfig, takenOver bool, new []hostfiles.File) ([]hostfiles.File, error) {
	kept, err := a.EntriesOf(old)
	if err != nil {
		return nil, err
	}
	before, err := carried(a.Host.Root, kept)
	if err != nil {
		return nil, err
	}
	asked := hostfiles.Paths(new)
	had := pivot.Target{Entries: hostfiles.Entries(before), Units: old.Units}
	etc, err := a.Host.Etc(had)
	if err != nil {
		return nil, err
	}
	gone := slices.DeleteFunc(etc.Of(had), func(e hostfiles.Entry) bool { return asked[e.Path] || e.Kind == hostfiles.KindDefault })
	var paths []string
	for _, e := range gone {
		paths = append(paths, e.Path)
	}
	changed := map[string]bool{}
	for _, change := range etc.Changes(gone) {
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

// carried returns old, the entries of the current MachineConfig, with the other entries that
// the running system carries outside of /etc, which earlier MachineConfigs asked for.
func carried(root string, old []hostfiles.File) ([]hostfiles.File, error) {
	all := slices.Clone(old)
	carried, err := projection.Read(root)
	known := hostfiles.Paths(old)
	for _, e := range carried.Entries {
		if !known[e.Path] {
			all = append(all, hostfiles.File{Entry: e})
		}
	}
	return all, err
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
