package day2

import (
	"context"
	"errors"
	"fmt"

	"machine-pivot/internal/disruption"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/pid1"
	"machine-pivot/internal/projection"
	"machine-pivot/internal/sepolicy"
	"machine-pivot/pivot"
)

// LiveChange is a change of the running /etc. Its JSON form is that of the journal.
type LiveChange struct {
	BootID  pid1.StartID        `json:"bootID"` // of the start in which it was begun
	Entries []LiveEntry         `json:"entries"`
	Actions []disruption.Action `json:"actions"` // in order
	Record  hostfiles.File      `json:"record"`  // of the MachineConfig; written when the change is done
	Target  pivot.Target        `json:"target"`  // the machine's target after the change
	// Projects says that Entries change what the system carries for paths outside of /etc.
	Projects bool `json:"projects,omitempty"`
	// Drifted are paths outside of /etc that differ from what the system carries. A rollback
	// restores them to Old.
	Drifted []LiveEntry `json:"drifted,omitempty"`
	// Failure is the reason for a rollback; "" before a rollback.
	Failure string `json:"failure,omitempty"`
	// Done says that all entries are changed and all actions have succeeded. The change is not
	// rolled back any more, and only the record is missing.
	Done bool `json:"done,omitempty"`
}

// LiveEntry is a path that changes, with its old and new file, with numeric owners. nil means that there
// is none.
type LiveEntry struct {
	Path string          `json:"path"`
	Old  *hostfiles.File `json:"old,omitempty"`
	New  *hostfiles.File `json:"new,omitempty"`
}

// LiveRunner changes the /etc of a running system without a reboot, and reloads or restarts the services that read it.
// This cannot be one atomic step. So the change is journaled first, durably and with all contents. An interrupted change
// is finished. If a service fails, the change is rolled back, and the services are reloaded or restarted again.
//
// The order is:
//
//  1. Write the journal.
//  2. Stage the new files and links where nobody reads them, and sync them.
//  3. Change directories, files, passwords, removals and links, and sync the directories.
//  4. Project the entries outside of /etc, if what the system carries has changed.
//  5. Run each action once: a daemon-reload if a unit has changed, then reloads and restarts.
//     Check each service afterwards.
//  6. Journal that this is done.
//  7. Write the record, and remove the journal.
type LiveRunner struct {
	Root     string
	Disk     hostfiles.Disk
	Services host.Services
	// Project projects what the running system carries for paths outside of /etc. It is idempotent.
	Project func() error
	// PutBack durably restores a file, directory or link at such a path; nil removes what is there.
	PutBack func(path string, f *hostfiles.File) error
	BootID  pid1.StartID // of this start
	Note    func(string) // reports progress to people
	// Acted is called for each action as it is carried out; nil: nobody asks. Actions that turn
	// out to be unnecessary, as for a service that is not installed, are left out.
	Acted func(disruption.Action)
	// Arrived is called when a change is done, before its journal is removed. After a crash it
	// may be called again.
	Arrived func(LiveChange) error
}

// liveHint is the hint for a change that is neither finished nor taken back.
const liveHint = "correct what the message names, then: pivot apply --finish"

// Apply carries out a change. If it fails, it rolls the change back. If that fails too, the error
// says so.
func (r *LiveRunner) Apply(ctx context.Context, c LiveChange) error {
	if err := r.save(c); err != nil {
		return err
	}
	if p, err := r.forward(ctx, c); err != nil {
		return r.handleFailure(ctx, c, p, err)
	}
	return r.done(c)
}

// Finish finishes an interrupted change, or its rollback. It reports whether there was one.
func (r *LiveRunner) Finish(ctx context.Context) (found bool, err error) {
	c, found, err := r.load()
	if err != nil {
		return false, err
	}
	if !found {
		return false, r.clean()
	}
	// The run that was interrupted may have renamed the journal into place without this.
	if err := r.Disk.Sync(r.path(projection.OwnDir)); err != nil {
		return true, fault.New(fault.CannotWrite, "cannot finish the change of the running system: %w", err)
	}
	if c.Failure != "" {
		r.Note("taking back a change of the running system, which was interrupted: " + c.Failure)
		return true, r.rollBack(ctx, c, c.Actions)
	}
	r.Note("finishing a change of the running system, which was interrupted")
	if c.Done {
		return true, r.complete(c)
	}
	if _, err := r.forward(ctx, c); err != nil {
		return true, r.handleFailure(ctx, c, liveProgress{changed: true, acted: len(c.Actions)}, err)
	}
	return true, r.done(c)
}

// liveProgress is how far a change has got.
type liveProgress struct {
	changed bool // something in /etc may have changed
	acted   int  // number of actions begun
}

// forward makes the new entries and runs the actions.
func (r *LiveRunner) forward(ctx context.Context, c LiveChange) (p liveProgress, err error) {
	put, err := r.stage(ctx, c.Entries, func(e LiveEntry) *hostfiles.File { return e.New })
	if err != nil {
		return p, err
	}
	p.changed = true
	if err := put(); err != nil {
		return p, err
	}
	if c.Projects {
		if err := r.Project(); err != nil {
			return p, err
		}
	}
	p.acted, err = r.act(ctx, c, c.Actions)
	return p, err
}

// handleFailure rolls back a change that has failed. If the context has ended, it leaves the
// change to be finished later.
func (r *LiveRunner) handleFailure(ctx context.Context, c LiveChange, p liveProgress, cause error) error {
	if ctx.Err() != nil { // this may also be the reason of the failure
		return fault.New(fault.Unavailable, "%w: %w", context.Cause(ctx), cause)
	}
	if !p.changed {
		return errors.Join(cause, r.end())
	}
	c.Failure = cause.Error()[:min(len(cause.Error()), maxLiveFailure)]
	err := r.save(c)
	if err == nil {
		err = r.rollBack(ctx, c, c.Actions[:p.acted])
	}
	if err != nil {
		return fault.New(fault.KindOf(cause), "%w; and what was changed could not be put back: %w", cause, err).WithHint(liveHint)
	}
	return fault.New(fault.Refused, "%w; all of the change is taken back", cause).
		WithHint("correct the MachineConfig or the service and apply again; --reboot=now makes the change in a new deployment")
}

// rollBack restores the old entries and runs the given actions again.
func (r *LiveRunner) rollBack(ctx context.Context, c LiveChange, actions []disruption.Action) error {
	put, err := r.stage(ctx, c.Entries, func(e LiveEntry) *hostfiles.File { return e.Old })
	if err == nil {
		err = put()
	}
	if err == nil && c.Projects {
		err = r.restoreOutside(c)
	}
	if err != nil {
		return fault.New(fault.KindOf(err), "%w", err).WithHint(liveHint)
	}
	for _, a := range actions { // all of them, even if one fails
		if _, err := r.act(ctx, c, []disruption.Action{a}); err != nil {
			if ctx.Err() != nil {
				return err
			}
			r.Note(fmt.Sprintf("warning: also after restoring the earlier files: %v", err))
		}
	}
	return r.end()
}

// restoreOutside restores the entries outside of /etc.
func (r *LiveRunner) restoreOutside(c LiveChange) error {
	if err := r.Project(); err != nil {
		return err
	}
	for _, e := range c.Drifted {
		if err := r.PutBack(e.Path, e.Old); err != nil {
			return fmt.Errorf("cannot put back %s: %w", e.Path, err)
		}
	}
	return nil
}

// done journals that a change is not rolled back any more, and completes it. The order matters:
// a record that was written first could survive a rollback.
func (r *LiveRunner) done(c LiveChange) error {
	c.Done = true
	if err := r.save(c); err != nil {
		return err
	}
	return r.complete(c)
}

// complete writes the record of a change that is done, and removes the journal.
func (r *LiveRunner) complete(c LiveChange) error {
	var label string
	labels, err := sepolicy.RunningLabels(r.Root)
	if err == nil {
		err = hostfiles.MakeDir(r.Disk, r.path(projection.OwnDir), 0o755)
	}
	if err == nil {
		label, err = labels.Of(c.Record.Path, c.Record.Kind.Type())
	}
	if err == nil {
		err = hostfiles.Put(r.Disk, r.Root, c.Record, label)
	}
	if err != nil {
		return fault.New(fault.CannotWrite, "cannot keep the record of the MachineConfig: %w", err).WithHint(liveHint)
	}
	if err := r.Arrived(c); err != nil {
		return err
	}
	return r.end()
}
