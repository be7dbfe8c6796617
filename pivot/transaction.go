package pivot

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/machineconfig/enable"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/retry"
	"machine-pivot/internal/varentries"
	"machine-pivot/kargs"
)

// Images gets OS images into the host's repository.
type Images interface {
	// Resolve looks up the content that an image, which has no digest yet, is named for.
	Resolve(ctx context.Context, image Image) (Image, error)
	// Check finds out, without a write, whether Import could succeed: the image is
	// there, may be used, and would fit.
	Check(ctx context.Context, image Image) error
	// Import pulls image by its digest and returns it with Commit and Version
	// known; the whole commit is then in the repository, verified.
	Import(ctx context.Context, image Image, progress func(Amount)) (Image, error)
	// Release lets go of what the import kept, once a deployment keeps the image.
	Release(image Image) error
}

// Repositories get the repositories of packages that images carry.
type Repositories interface {
	// Check finds out, without a write, whether Fetch could succeed: the image is there,
	// may be used, and would fit.
	Check(ctx context.Context, image Image) error
	// Fetch puts the repository that image carries into a directory of the host, where it
	// stays until Release.
	Fetch(ctx context.Context, image Image, progress func(Amount)) (Repository, error)
	// Release removes what was fetched, by this run or one before.
	Release() error
}

// Request is the one deployment that a transaction makes.
type Request struct {
	Merge   Deployment // the booted deployment: its /etc is carried over
	Commit  string
	Image   Image            // for the origin; zero keeps the merge deployment's
	Kargs   kargs.Line       // complete
	Entries []hostfiles.File // put into the new deployment's /etc, their owners by number
	// Units are the links of units in a deployment of a commit; nil: there are none.
	Units func(commit string) (enable.Resolved, error) `json:"-"`
	// Packages are put on top of the image, or left out of it.
	Packages Packages
	// Repository fetches the repository in which packages of these names are. There is none,
	// and it may be nil, if it is left to the machine's own repositories to have them.
	Repository func(ctx context.Context, names []string) (Repository, error) `json:"-"`
}

// ForCommit is the request with the links of units among its entries, for a deployment of
// a commit, which is in the repository.
func (r Request) ForCommit(commit string) (Request, error) {
	if r.Units == nil {
		return r, nil
	}
	units, err := r.Units(commit)
	if err != nil {
		return r, err
	}
	r.Entries = slices.DeleteFunc(slices.Clone(r.Entries), func(f hostfiles.File) bool { return units.By[f.Path] != "" })
	for _, link := range units.Entries {
		r.Entries = append(r.Entries, hostfiles.File{Entry: link})
	}
	r.Units = nil
	return r, nil
}

// Engine makes deployments. libostree or rpm-ostree do the work; an Engine
// drives one of them.
type Engine interface {
	// Preflight is an error if the engine cannot move this host to another image, or change
	// its packages, as a plan wants it to and as is known without the image. It writes
	// nothing.
	Preflight(ctx context.Context, plan Plan) error
	// Accept is an error if what the engine makes would not boot a system that mounts its
	// root so. It is asked as soon as an import knows that, and writes nothing.
	Accept(ctx context.Context, p ostree.PrepareRoot) error
	// Prepare makes the deployment without the next boot seeing it, and checks
	// it against the request field by field.
	Prepare(ctx context.Context, r Request) error
	// Commit makes image, packages, arguments and files the next boot in one atomic step,
	// and checks the result. Before it nothing has changed; after it all has.
	Commit(ctx context.Context, r Request) error
	// Discard takes back what Prepare made.
	Discard(ctx context.Context) error
}

// Transaction carries out a plan up to the point where only the reboot is missing.
type Transaction struct {
	Images       Images
	Repositories Repositories
	Engine       Engine
	Retry        retry.Policy
	Progress     *Progress
	// Entries are the target's, with their contents.
	Entries []hostfiles.File
	// Keep are those of them whose contents an attempt after a reboot could not
	// read again: they are kept until the transaction is done.
	Keep []hostfiles.File
	// Learn completes a plan by what only the content of its image tells, once that is in
	// the repository; nil does nothing.
	Learn func(Plan) (Plan, error)
	// Accounts are the users and groups of the system that a plan leads to, whose image is
	// in the repository. They are asked for only if an entry names its owner.
	Accounts func(Plan) (hostfiles.Accounts, error)
	// Units are what a plan's target asks of units, in the system of a commit. They are asked
	// for only if it asks anything.
	Units func(plan Plan, commit string) (enable.Resolved, error)
	// BeforeCommit is called when all is prepared, before the commit; nil does nothing.
	BeforeCommit func(ctx context.Context) error
	// Trying is nil if the new system needs no trial.
	Trying *Trying
}

// Run makes the plan's target the next boot. On failure before the commit the host is
// as it was.
func (t *Transaction) Run(ctx context.Context, plan Plan, attempt int) error {
	p, state := t.Progress, plan.state
	p.Start(attempt, state.BootID, plan.target)
	if err := p.store(t.Keep); err != nil {
		return err
	}
	if err := p.Enter(PhaseApplying, state.BootID); err != nil {
		return err
	}
	r, err := t.request(ctx, &plan)
	p.Record.Target = plan.target // with what was learned of the image
	if err != nil {
		return err
	}
	return t.make(ctx, state.BootID, r)
}

// request pulls a plan's image, completes the plan by what is learned of it, and is what an
// engine has to be asked for. The next boot sees nothing of it.
func (t *Transaction) request(ctx context.Context, plan *Plan) (Request, error) {
	r := Request{Merge: plan.state.Booted, Commit: plan.state.Booted.Commit}
	if plan.Image.Changed {
		image, err := t.pull(ctx, plan.target.Image)
		if err != nil {
			return r, err
		}
		plan.target.Image = image
		if t.Learn != nil {
			if *plan, err = t.Learn(*plan); err != nil {
				return r, err
			}
		}
		r.Commit, r.Image = image.Commit, image
	}
	entries, err := t.owned(*plan)
	if err != nil {
		return r, err
	}
	if entries, err = plan.state.Etc.Carried.Carry(entries); err != nil {
		return r, err
	}
	r.Kargs, r.Entries, r.Units = plan.Kargs.Final, entries, t.unitsOf(*plan)
	r.Packages, r.Repository = plan.target.Packages, t.repository(plan.target.Packages.Source)
	return r, nil
}

// repository fetches the repository of packages from their source when an engine asks for
// it, which is when it knows that it needs packages.
func (t *Transaction) repository(source Image) func(ctx context.Context, names []string) (Repository, error) {
	return func(ctx context.Context, names []string) (r Repository, err error) {
		if source.IsZero() {
			return r, nil
		}
		t.Progress.Begin(StepPull, "pulling packages from "+source.Reference)
		err = t.Retry.Do(ctx, t.Progress.Waiting, func(ctx context.Context) (err error) {
			r, err = t.Repositories.Fetch(ctx, source, t.Progress.Moved)
			return err
		})
		if err != nil {
			return r, err
		}
		if lacking := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(r.Names, name) }); len(lacking) > 0 {
			return r, fault.New(fault.Refused, "cannot install %s: %s has no such package", strings.Join(lacking, ", "), source.Reference).
				WithHint("the image of extensions must be of the same release as the OS image")
		}
		t.Progress.Begin(StepPrepare, "changing packages")
		return r, nil
	}
}

// unitsOf are what a plan asks of units, as an engine asks for them.
func (t *Transaction) unitsOf(plan Plan) func(commit string) (enable.Resolved, error) {
	if plan.target.Units.IsZero() {
		return nil
	}
	return func(commit string) (enable.Resolved, error) {
		units, err := t.Units(plan, commit)
		if err != nil {
			return units, err
		}
		if wrong := units.Err(); wrong != nil {
			return units, fault.New(fault.BadInput, "cannot use the MachineConfig's units in the new system: %w", wrong).WithHint(enable.Hint)
		}
		return units, nil
	}
}

// owned are the entries with the numbers of their owners in the system that a plan
// leads to. Those that it carries keep the names, which have numbers there: they are looked
// up again when it runs.
func (t *Transaction) owned(plan Plan) ([]hostfiles.File, error) {
	entries := slices.Clone(t.Entries)
	if !slices.ContainsFunc(entries, func(f hostfiles.File) bool { return f.Named() }) {
		return entries, nil
	}
	accounts, err := t.Accounts(plan)
	if err != nil {
		return nil, err
	}
	for i := range entries {
		owned, err := accounts.Owned(entries[i].Entry)
		if err != nil {
			return nil, fault.New(fault.BadInput, "%w in the new system", err).
				WithHint("name one that the image has (users that systemd-sysusers makes are there only once the system runs), or give a number")
		}
		if !varentries.Outside(owned.Path) {
			entries[i].Entry = owned
		}
	}
	return entries, nil
}

// Return makes a deployment that is there already the next boot again.
func (t *Transaction) Return(ctx context.Context, state State, target Target, to Deployment) error {
	t.Progress.Start(1, state.BootID, target)
	if err := t.Progress.Enter(PhaseApplying, state.BootID); err != nil {
		return err
	}
	return t.make(ctx, state.BootID, Request{
		Merge: state.Booted, Commit: to.Commit, Image: target.Image, Kargs: to.Options,
	})
}

// make has the engine make what is requested, and commits it.
func (t *Transaction) make(ctx context.Context, bootID string, r Request) error {
	t.Progress.Begin(StepPrepare, "preparing one deployment of ostree commit "+r.Commit)
	if err := t.Engine.Prepare(ctx, r); err != nil {
		return t.discard(ctx, err)
	}
	return t.commit(ctx, bootID, r)
}

func (t *Transaction) pull(ctx context.Context, image Image) (Image, error) {
	t.Progress.Begin(StepPull, "pulling "+image.Reference)
	var got Image
	err := t.Retry.Do(ctx, t.Progress.Waiting, func(ctx context.Context) (err error) {
		got, err = t.Images.Import(ctx, image, t.Progress.Moved)
		return err
	})
	return got, err
}

// discard takes the prepared deployment back because of err.
func (t *Transaction) discard(ctx context.Context, err error) error {
	if derr := t.Engine.Discard(context.WithoutCancel(ctx)); derr != nil {
		return fmt.Errorf("%w (and what was prepared could not be removed: %v)", err, derr)
	}
	return err
}

// commit journals the intent first: from then on only the host can say which
// system the next boot is. Once begun it is not cancelled; it takes seconds.
func (t *Transaction) commit(ctx context.Context, bootID string, r Request) error {
	t.Progress.Begin(StepCommit, "committing image, kernel arguments and files in one step")
	if t.BeforeCommit != nil {
		if err := t.BeforeCommit(ctx); err != nil {
			return t.discard(ctx, err)
		}
	}
	if t.Trying != nil {
		t.Progress.Record.Trial = new(t.Trying.Trial)
	}
	if err := t.Progress.Enter(PhaseCommitted, bootID); err != nil {
		return t.discard(ctx, err)
	}
	if err := t.Engine.Commit(context.WithoutCancel(ctx), r); err != nil {
		return err
	}
	if t.Trying != nil {
		if err := t.hold(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	return t.Progress.Keep()
}

// hold makes the old system the default again. Where that fails, the next boot is the
// trial all the same, and makes up for it.
func (t *Transaction) hold(ctx context.Context) (err error) {
	t.Progress.Record.Trial.New, err = t.Trying.Hold(ctx)
	return err
}
