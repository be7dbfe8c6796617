// Package live changes the /etc of a running system, and has the services that read it
// learn of it: without a reboot, and so not in one atomic step. What is meant is written
// down first, durably and with all contents. Interrupted, the change is finished forward;
// if a service does not take it, all is put back and the services are told again.
//
// The order is: the journal; new contents as files that nobody reads, synced; directories,
// files, passwords, removals, links, and their directories synced; what the system carries
// outside of /etc, which is among these, projected; one daemon-reload if a unit
// changed; each action on a service once, each service looked at afterwards; in the journal
// that this is done; the record; the end of the journal.
package live

import (
	"context"
	"errors"
	"fmt"

	"machine-pivot/internal/disruption"
	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/pivot"
)

// Change is a change of the /etc that runs.
type Change struct {
	BootID  string // of the boot that it was begun in
	Entries []Entry
	Actions []disruption.Action // in their order
	Record  hostfiles.File      // written once all is done
	Target  pivot.Target        // what the machine is then
	// Projects says that Entries change what the system carries outside of /etc.
	Projects bool
	// Drifted are paths outside of /etc where something else stands, as Old, than what the
	// system carries: so they are again if the change is taken back.
	Drifted []Entry
	// Failure is why what stood before is put back; "" as long as the change goes forward.
	Failure string
	// Done says that all entries are there and all services have taken it: it is not taken
	// back any more, and only the record is missing.
	Done bool
}

// Entry is a path that changes. Nil is nothing.
type Entry struct {
	Path     string
	Old, New *hostfiles.File // owners by number
}

// Outside is what is not below /etc.
type Outside interface {
	// Project makes it what the running system carries. It can be done again.
	Project() error
	// PutBack makes a file, directory or link stand at a path, durably; nil removes what does.
	PutBack(path string, f *hostfiles.File) error
}

// Runner carries out changes of one machine.
type Runner struct {
	Root     string
	Disk     hostfiles.Disk
	Services Services
	Outside  Outside
	BootID   string       // of this boot
	Note     func(string) // tells people
	// Arrived is called when a change is done, before its journal ends; after a crash
	// perhaps once more.
	Arrived func(Change) error
}

// hint is the remedy for a change that is neither done nor taken back.
const hint = "correct what the message names, then: pivot apply --finish"

// Apply carries out a change. If it fails, all is as it was before, or the error says that
// it is not.
func (r *Runner) Apply(ctx context.Context, c Change) error {
	if err := r.save(c); err != nil {
		return err
	}
	if far, err := r.forward(ctx, c); err != nil {
		return r.turn(ctx, c, far, err)
	}
	return r.done(c)
}

// Finish carries out what was interrupted, if anything was, and reports whether.
func (r *Runner) Finish(ctx context.Context) (found bool, err error) {
	c, found, err := r.load()
	if err != nil || !found {
		return false, errors.Join(err, r.clean())
	}
	if c.Failure != "" {
		r.Note("taking back a change of the running system, which was interrupted: " + c.Failure)
		return true, r.back(ctx, c, c.Actions)
	}
	r.Note("finishing a change of the running system, which was interrupted")
	if c.Done {
		return true, r.arrive(c)
	}
	if _, err := r.forward(ctx, c); err != nil {
		return true, r.turn(ctx, c, progress{changed: true, acted: len(c.Actions)}, err)
	}
	return true, r.done(c)
}

// progress is how far a change went.
type progress struct {
	changed bool // something that stood in /etc may differ
	acted   int  // how many of the actions were begun
}

// forward makes what is new so, and has the services learn of it.
func (r *Runner) forward(ctx context.Context, c Change) (p progress, err error) {
	put, err := r.stage(ctx, c.Entries, func(e Entry) *hostfiles.File { return e.New })
	if err != nil {
		return p, err
	}
	p.changed = true
	if err := put(); err != nil {
		return p, err
	}
	if c.Projects {
		if err := r.Outside.Project(); err != nil {
			return p, err
		}
	}
	p.acted, err = r.act(ctx, c, c.Actions)
	return p, err
}

// turn decides about a change that failed: whoever was only stopped goes on later.
func (r *Runner) turn(ctx context.Context, c Change, p progress, cause error) error {
	if ctx.Err() != nil { // whatever failed may have been stopped too
		return fault.New(fault.Unavailable, "%w: %w", context.Cause(ctx), cause)
	}
	if !p.changed {
		return errors.Join(cause, r.end())
	}
	c.Failure = cause.Error()
	err := r.save(c)
	if err == nil {
		err = r.back(ctx, c, c.Actions[:p.acted])
	}
	if err != nil {
		return fault.New(fault.KindOf(cause), "%w; and what was changed could not be put back: %w", cause, err).WithHint(hint)
	}
	return fault.New(fault.Refused, "%w; all of the change is taken back", cause).
		WithHint("correct the MachineConfig or the service and apply again; --reboot=now makes the change in a new deployment")
}

// back puts back what stood before, and has the services learn of that.
func (r *Runner) back(ctx context.Context, c Change, actions []disruption.Action) error {
	put, err := r.stage(ctx, c.Entries, func(e Entry) *hostfiles.File { return e.Old })
	if err == nil {
		err = put()
	}
	if err == nil && c.Projects {
		err = r.backOutside(c)
	}
	if err != nil {
		return fault.New(fault.KindOf(err), "%w", err).WithHint(hint)
	}
	for _, a := range actions { // one that fails does not keep the others from it
		if _, err := r.act(ctx, c, []disruption.Action{a}); err != nil {
			if ctx.Err() != nil {
				return err
			}
			r.Note(fmt.Sprintf("warning: with what stood before, too: %v", err))
		}
	}
	return r.end()
}

// backOutside makes what is outside of /etc what it was.
func (r *Runner) backOutside(c Change) error {
	if err := r.Outside.Project(); err != nil {
		return err
	}
	for _, e := range c.Drifted {
		if err := r.Outside.PutBack(e.Path, e.Old); err != nil {
			return fmt.Errorf("cannot put back %s: %w", e.Path, err)
		}
	}
	return nil
}

// done makes it durable that a change is not taken back any more, and ends it. A record
// that was written before that could outlive the change.
func (r *Runner) done(c Change) error {
	c.Done = true
	if err := r.save(c); err != nil {
		return err
	}
	return r.arrive(c)
}

// arrive ends a change that is done.
func (r *Runner) arrive(c Change) error {
	labels, err := hostfiles.RunningLabels(r.Root)
	if err == nil {
		err = hostfiles.MakeDir(r.Disk, r.path(dir), 0o755)
	}
	if err == nil {
		err = hostfiles.Put(r.Disk, r.Root, c.Record, labels)
	}
	if err != nil {
		return fault.New(fault.CannotWrite, "cannot keep the record of the MachineConfig: %w", err).WithHint(hint)
	}
	if err := r.Arrived(c); err != nil {
		return err
	}
	return r.end()
}
