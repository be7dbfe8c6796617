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
	"machine-pivot/internal/pid1"
	"machine-pivot/internal/projection"
	"machine-pivot/internal/retry"
	"machine-pivot/kargs"
)

// Images pulls OS images into the host's ostree repository.
type Images interface {
	// Resolve returns image with the digest that its tag points to now.
	Resolve(ctx context.Context, image Image) (Image, error)
	// Check reports, without writing anything, whether Import could succeed: the image
	// exists, may be used, and fits on the disk.
	Check(ctx context.Context, image Image) error
	// Import pulls image by its digest and returns it with Commit and Version set. The
	// complete, verified commit is then in the repository.
	Import(ctx context.Context, image Image, progress func(Amount)) (Image, error)
	// Secure restores what other programs have removed from the repository of an image that Import
	// has returned: the refs by which they find the image and its layers. It returns an error if
	// that is not possible.
	Secure(ctx context.Context, image Image) error
	// Release drops what the import kept, and images that no deployment uses any more. It is
	// called once a deployment keeps the image. It does not remove the images with the commits keep, which a
	// deployment of somebody else had until then.
	Release(ctx context.Context, image Image, keep ...string) error
	// Remove removes what was pulled of images, unless they are deployed.
	Remove(ctx context.Context, images []Image) error
}

// Repositories fetches package repositories that are shipped in container images.
type Repositories interface {
	// Check reports, without writing anything, whether Fetch could succeed: the image
	// exists, may be used, and fits on the disk.
	Check(ctx context.Context, image Image) error
	// Fetch extracts the repository in image to a directory of the host, where it stays
	// until Release.
	Fetch(ctx context.Context, image Image, progress func(Amount)) (Repository, error)
	// Release removes what this run or an earlier one fetched.
	Release() error
}

// Spec describes the one deployment that a transaction makes.
type Spec struct {
	Merge   Deployment // the merge deployment, which is the booted one: its /etc is carried over
	Commit  string
	Image   Image            // for the origin; the zero value keeps the merge deployment's origin
	Kargs   kargs.Line       // the complete kernel command line
	Entries []hostfiles.File // for the new deployment's /etc, with numeric owners
	// Secure restores what other programs have removed of the image from the repository, or returns
	// an error; nil if the image stays. See Secured.
	Secure func(ctx context.Context) error `json:"-"`
	// Units resolves the links that enable or disable units in a deployment of commit; nil if
	// there are none.
	Units func(commit string) (enable.Resolved, error) `json:"-"`
	// Packages are layered on top of the image, or removed from it.
	Packages Packages
	// Repository fetches the repository with the named packages. It returns a zero Repository,
	// or is nil, if the packages come from the repositories that the machine has configured.
	Repository func(ctx context.Context, names []string) (Repository, error) `json:"-"`
}

// Secured is a no-op if the image stays. An engine calls it directly before its commit, and again
// after it, since nothing locks the refs: with an error the commit does not happen, or is taken back.
func (r Spec) Secured(ctx context.Context) error {
	if r.Secure == nil {
		return nil
	}
	return r.Secure(ctx)
}

// ForCommit returns the request with the links of units added to its entries, for a deployment
// of commit, which must be in the repository.
func (r Spec) ForCommit(commit string) (Spec, error) {
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

// Engine makes deployments by driving libostree or rpm-ostree, which do the work.
type Engine interface {
	// Preflight returns an error if the engine cannot change the image or the packages of this
	// host as plan requires, as far as this is known without the image. It writes nothing.
	Preflight(ctx context.Context, plan Plan) error
	// CheckPrepareRoot returns an error if a deployment that the engine makes would not boot with the
	// image's prepare-root configuration p. It is called as soon as the import has read that
	// configuration, and writes nothing.
	CheckPrepareRoot(ctx context.Context, p ostree.PrepareRoot) error
	// CheckSpace returns an error unless there is room for what a deployment of a commit in the repository puts into
	// /boot. It writes nothing.
	CheckSpace(ctx context.Context, commit string) error
	// Prepare makes the deployment without changing the next boot, and compares it with the
	// request field by field.
	Prepare(ctx context.Context, r Spec) error
	// Commit makes image, packages, arguments and files the next boot in one atomic step,
	// and checks the result.
	Commit(ctx context.Context, r Spec) error
	// Discard removes what Prepare made.
	Discard(ctx context.Context) error
}

// Transaction carries out a plan, up to but not including the reboot.
type Transaction struct {
	Images       Images
	Repositories Repositories
	Engine       Engine
	Retry        retry.Policy
	Progress     *Progress
	// Entries are the target's entries with their contents.
	Entries []hostfiles.File
	// Keep are the entries with contents that an attempt after a reboot could not read again. Their contents are kept
	// until the transaction is done.
	Keep []hostfiles.File
	// Inherits returns what the new deployment of a commit gets besides the entries; nil if that is nothing. See Request.
	Inherits func(commit string) ([]hostfiles.File, error)
	// Features do what they have to before and after each step.
	Features Features
	// Learn completes a plan with information that is only in the content of its image. It is
	// called when the image is in the repository; nil is a no-op.
	Learn func(context.Context, Plan) (Plan, error)
	// Accounts returns the users and groups of the plan's new system; its image is in the repository. It is called only
	// if an entry has an owner by name.
	Accounts func(Plan) (hostfiles.Accounts, error)
	// Units resolves the plan's wishes for units in the system of commit. It is called only if
	// the target has such wishes.
	Units func(plan Plan, commit string) (enable.Resolved, error)
	// BeforeCommit is called between preparation and commit; nil is a no-op.
	BeforeCommit func(ctx context.Context) error
	// Forget undoes what a killed reboot has prepared to enter, past the boot loader. It is called right before the commit;
	// nil is a no-op.
	Forget func(ctx context.Context) error
	// ByHand marks a transaction that no later run continues. The journal is about it only from its commit on, and not
	// even then if the commit fails and nothing has changed. What the machine was last brought to stays what it is
	// judged by.
	ByHand bool
	// Pulling is called before an image is pulled; nil is a no-op.
	Pulling func(Image) error
	// NextBoot returns what the next boot starts; nil if that is not known.
	NextBoot func(ctx context.Context) (Deployment, error)

	// unjournal is for a commit that fails with an error, which it returns: see journalCommit.
	unjournal func(context.Context, error) error
}

// Run makes the plan's target the next boot. If it fails before the commit, the next boot is
// unchanged.
func (t *Transaction) Run(ctx context.Context, plan Plan, attempt int) error {
	p, state, r := t.Progress, plan.state, Spec{}
	return t.inOrder(ctx, &plan, work{
		StepBegin: func(_ context.Context, s Info) error {
			p.Start(attempt, state.BootID, plan.target)
			if err := p.store(t.Keep); err != nil {
				return err
			}
			return t.begin(s.Phase, state.BootID)
		},
		StepPull: func(ctx context.Context, _ Info) (err error) {
			r, err = t.request(ctx, &plan)
			p.Content.Target = plan.target // including what was learned about the image
			return err
		},
		StepPrepare: func(ctx context.Context, _ Info) error {
			p.Content.Target = plan.target // a feature may have learned more
			p.Begin(StepPrepare, "preparing one deployment of ostree commit "+r.Commit)
			return t.Engine.Prepare(ctx, r)
		},
		StepReady: func(ctx context.Context, s Info) error {
			p.Begin(s.Shown, "committing image, kernel arguments and files in one step")
			if err := t.ready(ctx); err != nil {
				return err
			}
			return r.Secured(ctx)
		},
		StepIntend: t.intend(state),
		StepCommit: func(ctx context.Context, _ Info) error { return t.Engine.Commit(ctx, r) },
		StepKeep:   func(context.Context, Info) error { return p.Keep() },
	})
}

// ready calls BeforeCommit.
func (t *Transaction) ready(ctx context.Context) error {
	if t.BeforeCommit == nil {
		return nil
	}
	return t.BeforeCommit(ctx)
}

// begin enters the phase in which the next boot is unchanged. It returns an error if the journal could not carry the
// transaction to its end.
func (t *Transaction) begin(phase Phase, bootID pid1.StartID) error {
	if err := t.Progress.Journal.checkRoom(t.Progress.Content); err != nil {
		return err
	}
	if t.ByHand {
		t.Progress.Announce(phase, bootID)
		return nil
	}
	return t.Progress.Enter(phase, bootID)
}

// request pulls the plan's image, completes the plan with what is learned from the image, and
// returns the request for the engine. It does not change the next boot.
func (t *Transaction) request(ctx context.Context, plan *Plan) (Spec, error) {
	r := Spec{Merge: plan.state.Booted, Commit: plan.state.Booted.Commit}
	if plan.Image.Changed {
		image, err := t.pull(ctx, plan.target.Image)
		if err != nil {
			return r, err
		}
		plan.target.Image = image
		if t.Learn != nil {
			if *plan, err = t.Learn(ctx, *plan); err != nil {
				return r, err
			}
		}
		r.Commit, r.Image = image.Commit, image
		r.Secure = func(ctx context.Context) error { return t.Images.Secure(ctx, image) }
	}
	entries, err := t.owned(*plan)
	if err != nil {
		return r, err
	}
	if entries, err = plan.state.Etc.Carried.Carry(entries); err != nil {
		return r, err
	}
	if t.Inherits != nil {
		inherited, err := t.Inherits(r.Commit)
		if err != nil {
			return r, err
		}
		entries = append(entries, inherited...)
	}
	r.Kargs, r.Entries, r.Units = plan.Kargs.Final, entries, t.unitsOf(*plan)
	r.Packages, r.Repository = plan.target.Packages, t.repository(plan.target.Packages.Source)
	return r, nil
}

// repository returns a function that fetches the package repository from source. An engine
// calls it only when it knows that it needs packages.
func (t *Transaction) repository(source Image) func(ctx context.Context, names []string) (Repository, error) {
	return func(ctx context.Context, names []string) (r Repository, err error) {
		if source.IsZero() {
			return r, nil
		}
		t.Progress.Begin(StepPull, "pulling packages from "+source.Reference().String())
		err = t.Retry.Do(ctx, t.Progress.Waiting, func(ctx context.Context) (err error) {
			r, err = t.Repositories.Fetch(ctx, source, t.Progress.Moved)
			return err
		})
		if err != nil {
			return r, err
		}
		if lacking := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(r.Names, name) }); len(lacking) > 0 {
			return r, fault.New(fault.Refused, "cannot install %s: %s has no such package", strings.Join(lacking, ", "), source.Reference()).
				WithHint("use the extensions image of the OS image's release, by baseOSExtensionsContainerImage or --extensions-image")
		}
		t.Progress.Begin(StepPrepare, "changing packages")
		return r, nil
	}
}

// unitsOf returns the Spec.Units of a plan; nil if its target has no wishes for units.
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

// owned returns the entries with numeric owners, as the plan's new system assigns them. Entries
// outside of /etc keep the names, which are only checked here: they are looked up again when
// the new system projects the entries.
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
		if !projection.Outside(owned.Path) {
			entries[i].Entry = owned
		}
	}
	return entries, nil
}

// Return makes an existing deployment the next boot again, by a function that does it in one
// atomic step. target is what that deployment is to be judged by.
func (t *Transaction) Return(ctx context.Context, state State, target Target, to Deployment, makeDefault func(context.Context) error) error {
	plan := Plan{state: state, target: target}
	return t.inOrder(ctx, &plan, work{
		StepReady: func(ctx context.Context, s Info) error {
			t.Progress.Begin(s.Shown, "making deployment "+to.ID()+" the next boot")
			if err := t.ready(ctx); err != nil {
				return err
			}
			t.Progress.Start(1, state.BootID, target)
			return t.begin(PhaseApplying, state.BootID)
		},
		StepIntend: t.intend(state),
		StepCommit: func(ctx context.Context, _ Info) error { return makeDefault(ctx) },
		StepKeep:   func(context.Context, Info) error { return t.Progress.Keep() },
	})
}

func (t *Transaction) pull(ctx context.Context, image Image) (Image, error) {
	if t.Pulling != nil {
		if err := t.Pulling(image); err != nil {
			return image, err
		}
	}
	t.Progress.Begin(StepPull, "pulling "+image.Reference().String())
	var got Image
	err := t.Retry.Do(ctx, t.Progress.Waiting, func(ctx context.Context) (err error) {
		got, err = t.Images.Import(ctx, image, t.Progress.Moved)
		return err
	})
	return got, err
}

// discard removes the prepared deployment, if there is one, and returns err, extended if the removal fails.
func (t *Transaction) discard(ctx context.Context, err error) error {
	if t.Engine == nil {
		return err
	}
	if derr := t.Engine.Discard(context.WithoutCancel(ctx)); derr != nil {
		return fmt.Errorf("%w (and what was prepared could not be removed: %v)", err, derr)
	}
	return err
}

// intend returns the step that journals the intention: from then on only the host shows which system the next boot
// starts.
func (t *Transaction) intend(state State) func(context.Context, Info) error {
	return func(ctx context.Context, s Info) (err error) {
		if t.Forget != nil {
			if err := t.Forget(ctx); err != nil {
				return err
			}
		}
		t.unjournal, err = t.journalCommit(state, s.Phase)
		return err
	}
}

// journalCommit journals that the transaction is about to be committed. The returned function is for a commit that
// fails with an error, which it returns. If the transaction is by hand, and the next boot is still the one from before,
// the journal is again what it was.
func (t *Transaction) journalCommit(state State, phase Phase) (unjournal func(context.Context, error) error, err error) {
	p, bootID := t.Progress, state.BootID
	if !t.ByHand {
		return func(_ context.Context, err error) error { return err }, p.Enter(phase, bootID)
	}
	before, err := p.Journal.Load()
	if err != nil {
		return nil, err
	}
	own := p.Content.Contents
	p.Content.Contents = append(slices.Clone(own), before.Contents...) // what before names must not be removed yet
	defer func() { p.Content.Contents = own }()
	restore := func(err error) error {
		if rerr := p.restore(before); rerr != nil {
			return fmt.Errorf("%w (and the journal could not be put back: %v)", err, rerr)
		}
		return err
	}
	if err := p.Enter(phase, bootID); err != nil {
		return nil, restore(err)
	}
	return func(ctx context.Context, err error) error {
		if t.NextBoot == nil {
			return err
		}
		next, nerr := t.NextBoot(context.WithoutCancel(ctx))
		if nerr != nil || next.ID() != state.Default.ID() || !next.Options.EqualButOstree(state.Default.Options) {
			return err
		}
		return restore(err)
	}, nil
}
