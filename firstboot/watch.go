package firstboot

import (
	"context"
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
	for {
		if err := w.open(); err != nil {
			return nil, err
		}
		record := w.Progress.Record
		// Watched before it is looked at: nothing happens unseen in between.
		paths, err := w.paths(ctx, record.Target)
		if err == nil {
			err = watcher.Paths(w.Host.Path("/"), paths)
		}
		if err != nil {
			return nil, err
		}
		differences = nil
		if reached(record, w.Progress.BootID) {
			if differences, err = w.converger().Differences(ctx, record.Target); err != nil {
				return nil, err
			}
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

// paths are those at which something that counts can happen.
func (w *Watch) paths(ctx context.Context, target pivot.Target) ([]string, error) {
	state, err := w.Host.Observe(ctx, target)
	if err != nil {
		return nil, err
	}
	paths := []string{pivot.StateDir + "/journal.json", bootEntries}
	for _, e := range state.Etc.Of(target) { // with the links of units
		paths = append(paths, e.OnDisk())
	}
	return paths, nil
}

// reached reports whether this boot should be what a record's target says: not before the
// reboot into it, nor after an end without one.
func reached(r pivot.Record, bootID string) bool {
	return r.Phase == pivot.PhaseDone || r.Phase == pivot.PhaseCommitted && r.BootID != bootID
}
