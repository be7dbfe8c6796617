package rpmostree

import (
	"context"
	"errors"
	"fmt"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/ostree"
	"machine-pivot/internal/retry"
	"machine-pivot/pivot"
)

// RpmOstree is the engine for a host where rpm-ostree is in charge. It never
// runs beside a transaction of rpm-ostree's, and what it makes rpm-ostree takes
// as its own.
//
// A new image on which nothing is layered, and a change without a new image, is
// staged by libostree in one call, as Ostree does it. rpm-ostree makes the
// deployment where only rpm-ostree can: where packages or overrides are layered.
type RpmOstree struct {
	Ostree
	Always  bool // rpm-ostree makes each deployment of a new image
	Limits  Limits
	Retry   retry.Policy
	Waiting func(error, retry.Pause) // told of each wait
	Note    func(message string)     // told what is worth knowing

	named    bool // the update driver has been
	silenced bool // that the daemon does not answer has been told
}

var _ pivot.Engine = (*RpmOstree)(nil)

// Preflight is an error if a deployment is known to fail, whatever the image. It waits until
// rpm-ostree is idle and names what drives updates. Nothing is written.
func (e *RpmOstree) Preflight(ctx context.Context, _ pivot.Plan) error {
	if err := e.checkSandbox(ctx); err != nil {
		return err
	}
	return e.beside(ctx, func() error { return nil })
}

// Prepare waits until rpm-ostree is idle, makes the deployment, changes its packages, and
// checks it.
func (e *RpmOstree) Prepare(ctx context.Context, r pivot.Request) error {
	if err := e.tidy(ctx); err != nil {
		return err
	}
	booted, err := e.Sysroot.Booted()
	if err != nil {
		return err
	}
	p := packages{engine: e, request: r}
	if err := e.make(ctx, r, booted, &p); err != nil {
		return err
	}
	if err := p.change(ctx); err != nil {
		return err
	}
	return e.checkPrepared(ctx, r)
}

// Discard takes back what Prepare made.
func (e *RpmOstree) Discard(ctx context.Context) error {
	return errors.Join(e.tidy(ctx), e.Ostree.Discard(ctx))
}

// tidy removes what a run left that was killed.
func (e *RpmOstree) tidy(ctx context.Context) error {
	return errors.Join(e.unconfigure(), e.letGo(ctx))
}

// make makes the deployment with the packages that the booted one has beside its image's.
func (e *RpmOstree) make(ctx context.Context, r pivot.Request, booted ostree.Deployment, p *packages) error {
	layered := booted.Origin.Layered()
	if r.Image.IsZero() || !layered && !e.Always {
		return e.beside(ctx, func() error { return e.stage(ctx, r, booted) })
	}
	tool, err := e.ask(ctx, "rpm-ostree")
	if err != nil {
		return err
	}
	cannot := tool.cannotMove(booted.Origin, r.Image)
	switch {
	case cannot == "":
		return p.keeping(ctx, booted, func() error { return e.rebase(ctx, r, tool) })
	case layered:
		return fault.New(fault.Refused, "cannot rebase to %s: rpm-ostree %s %s, and only rpm-ostree can keep the packages that are layered", r.Image.Reference, tool.version, cannot).
			WithHint("undo what is layered first: rpm-ostree reset")
	}
	e.Note(fmt.Sprintf("rpm-ostree %s %s: libostree makes the deployment, still with one reboot", tool.version, cannot))
	return e.beside(ctx, func() error { return e.stage(ctx, r, booted) })
}

// beside does work that libostree does alone, when rpm-ostree is idle. A daemon
// that does not answer has no transaction that could be in the way; libostree's
// own lock keeps both apart in any case.
func (e *RpmOstree) beside(ctx context.Context, work func() error) error {
	err := e.Retry.Do(ctx, e.Waiting, func(ctx context.Context) error {
		s, err := e.status(ctx)
		if err != nil {
			if !e.silenced {
				e.silenced = true
				e.Note(fmt.Sprintf("going on without rpm-ostree: %v", err))
			}
			return errors.Join(ctx.Err(), e.free())
		}
		return errors.Join(s.idle(), e.free())
	})
	if err != nil {
		return err
	}
	return work()
}
