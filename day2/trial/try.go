package trial

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
	"machine-pivot/internal/hostfiles"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/settings"
	"machine-pivot/pivot"
)

// trying is a trial that a run asks for.
type trying struct {
	Trial
	booted ostree.DeploymentRef // the one with the ID Trial.Old
	method settings.RebootMethod
	// fallback says that the setting fallback=auto asks for the trial, and not the command: if it is not possible, there
	// is none.
	fallback bool
	// accept returns an error if the system of a commit, which is in the repository, would not end the trial.
	accept func(commit string) error
}

// ask finds out which trial a request asks for, by flags or by the setting fallback=auto. A commit without its reboot has
// none. The new system gets the link that enables Unit there. If the trial is not possible, the reason is kept: a run
// that has nothing to commit does not need it.
func (f *feature) ask(ctx context.Context, plan *pivot.Plan) error {
	req := plan.Request()
	f.trying, f.cannot, f.without = nil, nil, nil
	chosen, err := f.machine.Settings()
	if err != nil { // the command reports them, unless the plan is only shown
		return nil
	}
	terms, err := termsOf(f.machine.Given)
	auto := chosen.Fallback == settings.FallbackAuto
	switch {
	case err != nil:
		return err
	case req.Shown && auto:
		f.trying, _ = f.attempt(ctx, chosen.RebootMethod)
	case !req.Reboots:
	case !req.ByHand && auto:
		f.trying, f.without = f.attempt(ctx, chosen.RebootMethod)
	case req.ByHand && terms != nil:
		f.cannot = f.machine.RequireClosedFirstBoot("try a new system")
		if f.cannot == nil {
			f.cannot = f.try(ctx, plan, chosen.RebootMethod, *terms)
		}
	case req.ByHand && auto && f.machine.RequireClosedFirstBoot("") == nil: // the first boot itself has a fallback
		if f.without = f.checkOnce(chosen.RebootMethod); f.without == nil {
			f.without = f.try(ctx, plan, chosen.RebootMethod, Terms{For: fallbackLimit, Confirm: ConfirmAuto})
		}
		if f.trying != nil {
			f.trying.fallback = true
		}
	}
	return nil
}

// fallbackLimit is how long a system may take to prove itself, from the start of its kernel, if the
// setting fallback asks for that.
const fallbackLimit = 10 * time.Minute

// try makes the plan's new system one on trial. It writes nothing. It returns an error if this machine could not go back to
// the running system.
func (f *feature) try(ctx context.Context, plan *pivot.Plan, method settings.RebootMethod, terms Terms) error {
	booted, err := f.Host.Sysroot().Booted()
	if err != nil {
		return err
	}
	link, err := f.Host.Enablement(unitWants, "conduct the trial")
	if err == nil {
		err = f.checkReturn(ctx)
	}
	if err != nil {
		return fault.New(fault.Refused, "cannot try a new system: %w", err)
	}
	if !slices.ContainsFunc(plan.Request().OwnEntries, func(f hostfiles.File) bool { return f.Path == link.Path }) { // from before a wait
		*plan = plan.With(link)
	}
	f.trying = &trying{
		Trial:  Trial{Old: booted.ID(), Seconds: int(terms.For.Seconds()), Confirm: terms.Confirm, Checks: terms.Checks},
		booted: booted.DeploymentRef, method: method, accept: f.accept,
	}
	return nil
}

// attempt returns the trial of a first boot, which proves its own result. Unit does not have to be in the new system: it
// only makes the old one the default earlier than the first boot does. An error says why this machine cannot enter a
// system only once: then its commits are as without the setting.
func (f *feature) attempt(ctx context.Context, method settings.RebootMethod) (*trying, error) {
	booted, err := f.Host.Sysroot().Booted()
	if err == nil {
		err = f.checkOnce(method)
	}
	if err == nil {
		err = f.checkReturn(ctx)
	}
	if err != nil {
		return nil, err
	}
	return &trying{
		Trial:  Trial{Old: booted.ID(), Confirm: ConfirmProof},
		booted: booted.DeploymentRef, method: method, fallback: true, accept: f.acceptFirstBoot,
	}, nil
}

// checkReturn returns an error if this machine could not go back to the running system.
func (c *Conductor) checkReturn(ctx context.Context) error {
	staged, err := c.Host.Sysroot().Staged()
	if err == nil && staged.Next() {
		err = fault.New(fault.Refused, "deployment %s is staged", staged.Target.ID()).WithHint("remove it first: ostree admin undeploy 0")
	}
	if err != nil {
		return err
	}
	return c.boots().Check(ctx)
}

// accept returns an error if the system of a commit lacks Unit, so that its trial would not be
// conducted.
func (c *Conductor) accept(commit string) error {
	has, err := c.Host.WillHaveUnit(Unit, commit)
	if err == nil && !has {
		err = fault.New(fault.Refused, "cannot try the new system: it has no %s, so nothing would check and end the trial", host.UnitInImage(Unit)).
			WithHint("put this release of pivot into the image, or leave out --try")
	}
	return err
}

// all returns the IDs of all deployments that have a boot entry, the default first.
func (c *Conductor) all() (ids []string, err error) {
	all, err := c.Host.Sysroot().Deployments()
	for _, d := range all {
		ids = append(ids, d.ID())
	}
	return ids, err
}

// intend journals, together with the intention to commit, that the new system is on trial.
func (f *feature) intend() error {
	all, err := f.all()
	known := f.remembered()
	known.Before = all
	return cmp.Or(err, f.trying.KeepIn(&f.Progress.Content), known.keepIn(&f.Progress.Content))
}

// hold makes the old system the default again, right after the commit. If it fails, the next boot starts the trial
// anyway, and the trial makes the old system the default.
//
// It journals the new deployment's ID first, by which a failed trial removes it. Once it is not the default any more, only
// what was journaled before the commit tells it from other deployments.
func (f *feature) hold(ctx context.Context) error {
	all, err := f.all()
	if err == nil {
		err = f.change(func(t *Trial) { t.New = all[0] })
	}
	if err == nil {
		known := f.remembered()
		known.Before = nil
		err = cmp.Or(known.keepIn(&f.Progress.Content), f.Progress.Journal.Save(f.Progress.Content))
	}
	return errors.Join(err, f.boots().Make(ctx, f.trying.booted)) // in any case: the trial finds the deployment without the journal, too
}
