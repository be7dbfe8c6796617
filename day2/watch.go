package day2

import (
	"context"
	"path"
	"path/filepath"
	"slices"
	"time"

	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machine"
	"machine-pivot/internal/machineconfig/enable"
	"machine-pivot/internal/pid1"
	"machine-pivot/pivot"
)

// Watch repeatedly compares the running system with what was last asked for, and reports the
// differences.
type Watch struct {
	*machine.Machine
	// Every is the longest time between two comparisons. Changes of files are noticed at
	// once, but not everything that is compared is a file.
	Every      time.Duration
	UntilDrift bool // return as soon as something differs
	// Tell is called after each comparison, unless the machine is not expected to be at its
	// target. It must not be nil.
	Tell func(differences []string)
	// Found are the differences of the last comparison.
	Found []pivot.Difference
}

// bootEntries is the directory of the boot entries, with the kernel arguments of the next boot.
const bootEntries = "/boot/loader/entries"

// Run compares until ctx is done, and returns the differences of the last comparison.
func (w *Watch) Run(ctx context.Context) (differences []string, err error) {
	watcher, err := hostfiles.NewWatcher()
	if err != nil {
		return nil, err
	}
	defer watcher.Close()
	var paths []string // of the previous comparison
	for {
		if err := w.Open(); err != nil {
			return nil, err
		}
		journal := w.Progress.Content
		// Watch before comparing, so that no change is missed in between.
		if err := watcher.Paths(w.Host.Path("/"), paths); err != nil {
			return nil, err
		}
		state, found, err := w.Compare(ctx)
		if err != nil {
			return nil, err
		}
		if other := w.watchedPaths(state, journal.Target); !slices.Equal(other, paths) { // always so the first time
			paths = other
			continue
		}
		differences, w.Found = nil, nil
		if expectsTarget(journal, w.Progress.BootID) {
			differences, w.Found = pivot.Texts(found), found
			w.Tell(differences)
		}
		if w.UntilDrift && len(differences) > 0 {
			return differences, nil
		}
		if err := watcher.Wait(ctx, w.Every); err != nil {
			if ctx.Err() != nil {
				err = nil // the normal end
			}
			return differences, err
		}
	}
}

// watchedPaths returns the paths where a change can make a difference.
func (w *Watch) watchedPaths(state pivot.State, target pivot.Target) []string {
	paths := []string{pivot.StateDir + "/journal.json", bootEntries}
	for _, e := range state.Etc.Of(target) { // includes the links of units
		paths = append(paths, e.OnDisk())
	}
	if len(target.Units.Wishes) > 0 {
		paths = append(paths, w.linkPaths()...)
	}
	return paths
}

// linkPaths returns the paths at which links can enable a unit: all in the directories of such links, and in the
// directory of units, where new ones are made.
func (w *Watch) linkPaths() []string {
	paths := []string{path.Join(enable.Dir, hostfiles.AnyName)}
	for _, suffix := range enable.Suffixes() {
		dirs, _ := filepath.Glob(w.Host.Path(path.Join(enable.Dir, "*"+suffix))) // the pattern is valid
		for _, dir := range dirs {
			paths = append(paths, path.Join(enable.Dir, filepath.Base(dir), hostfiles.AnyName))
		}
	}
	return paths
}

// expectsTarget reports whether this boot should be at a record's target. It should not before
// the reboot into it, during its trial, or if the transaction failed or was undone.
func expectsTarget(r pivot.JournalContent, bootID pid1.StartID) bool {
	return r.Phase == pivot.PhaseDone || r.Phase == pivot.PhaseCommitted && r.BootID != bootID
}
