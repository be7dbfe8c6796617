package firstboot

import (
	"context"
	"slices"
	"time"

	"machine-pivot/internal/watch"
	"machine-pivot/pivot"
)

// Watch compares what runs with what was last asked for, again and again, and tells what
// comes to differ.
type Watch struct {
	Machine
	// Every is the longest time between two looks: not all that counts is a file. What
	// happens to one is seen at once.
	Every      time.Duration
	UntilDrift bool // it ends as soon as something differs
	// Tell is called after each look at a machine that should be what was asked for; it is
	// not nil.
	Tell func(differences []string)
}

// bootEntries are where the kernel arguments of the next boot stand.
const bootEntries = "/boot/loader/entries"

// Run looks until ctx is done, and returns what differed in the last look.
func (w *Watch) Run(ctx context.Context) (differences []string, err error) {
	watcher, err := watch.New()
	if err != nil {
		return nil, err
	}
	defer watcher.Close()
	var paths []string // that the look before was for
	for {
		if err := w.open(); err != nil {
			return nil, err
		}
		record := w.Progress.Record
		// Watched before it is looked at: nothing happens unseen in between.
		if err := watcher.Paths(w.Host.Path("/"), paths); err != nil {
			return nil, err
		}
		state, found, err := w.converger().Compare(ctx, record.Target)
		if err != nil {
			return nil, err
		}
		if other := counting(state, record.Target); !slices.Equal(other, paths) { // as at the first look
			paths = other
			continue
		}
		differences = nil
		if reached(record, w.Progress.BootID) {
			differences = found
			w.Tell(differences)
		}
		if w.UntilDrift && len(differences) > 0 {
			return differences, nil
		}
		if err := watcher.Wait(ctx, w.Every); err != nil {
			if ctx.Err() != nil {
				err = nil // that is how it ends
			}
			return differences, err
		}
	}
}

// counting are the paths at which something that counts can happen.
func counting(state pivot.State, target pivot.Target) []string {
	paths := []string{pivot.StateDir + "/journal.json", bootEntries}
	for _, e := range state.Etc.Of(target) { // with the links of units
		paths = append(paths, e.OnDisk())
	}
	return paths
}

// reached reports whether this boot should be what a record's target says: not before the
// reboot into it, nor after an end without one.
func reached(r pivot.Record, bootID string) bool {
	return r.Phase == pivot.PhaseDone || r.Phase == pivot.PhaseCommitted && r.BootID != bootID
}
