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

// RpmOstree is the engine for a host that is managed by rpm-ostree. It never runs concurrently
// with a transaction of rpm-ostree, and rpm-ostree can continue from the deployments that it
// makes.
//
// If nothing is layered, or the image stays, libostree stages the deployment in one call, as in
// Ostree. rpm-ostree makes the deployment where only rpm-ostree can: if packages or overrides
// are layered.
type RpmOstree struct {
	Ostree
	Always  bool // let rpm-ostree make every deployment of a new image
	Limits  Limits
	Retry   retry.Policy
	Waiting func(error, retry.Pause) // called before each wait
	Note    func(message string)     // called with messages for people

	driverNoted  bool // the update driver was noted
	silenceNoted bool // it was noted that the daemon does not answer
}

var _ pivot.Engine = (*RpmOstree)(nil)

// Preflight implements pivot.Engine. It waits until rpm-ostree is idle, and notes an update
// driver. It writes nothing.
func (e *RpmOstree) Preflight(ctx context.Context, plan pivot.Plan) error {
	if err := e.checkRepositories(ctx, plan); err != nil {
		return err
	}
	if err := e.checkSandbox(ctx); err != nil {
		return err
	}
	return e.whenIdle(ctx, func() error { return nil })
}

// Prepare fetches the packages, waits until rpm-ostree is idle, makes the deployment, changes its packages, and
// checks it. Nothing is staged while anything is pulled: what is staged is seen by others, and a pull may take long.
func (e *RpmOstree) Prepare(ctx context.Context, r pivot.Spec) error {
	if err := e.cleanUp(ctx); err != nil {
		return err
	}
	booted, err := e.Sysroot.Booted()
	if err != nil {
		return err
	}
	if err := e.checkRemovable(); err != nil {
		return err
	}
	p := packages{engine: e, request: r}
	if err := p.fetch(ctx, booted); err != nil {
		return err
	}
	if err := e.make(ctx, r, booted, &p); err != nil {
		return err
	}
	if err := p.change(ctx); err != nil {
		return err
	}
	return e.checkPrepared(ctx, r)
}

// Discard removes what Prepare made.
func (e *RpmOstree) Discard(ctx context.Context) error {
	return errors.Join(e.cleanUp(ctx), e.Ostree.Discard(ctx))
}

// cleanUp removes temporary files of a run that was killed.
func (e *RpmOstree) cleanUp(ctx context.Context) error {
	return errors.Join(e.unconfigure(), e.enableFinalize(ctx))
}

// make makes the deployment, with the packages that are layered on the booted one.
func (e *RpmOstree) make(ctx context.Context, r pivot.Spec, booted ostree.Deployment, p *packages) error {
	layered := booted.Origin.Layered()
	if r.Image.IsZero() || !layered && !e.Always {
		return e.whenIdle(ctx, func() error { return e.stage(ctx, r, booted) })
	}
	tool, err := e.queryTool(ctx, "rpm-ostree")
	if err != nil {
		return err
	}
	cannot := tool.cannotMove(booted.Origin, r.Image)
	switch {
	case cannot == "":
		image, err := e.newRebase(r, tool)
		if err != nil {
			return err
		}
		return p.move(ctx, booted, image)
	case layered:
		return fault.New(fault.Refused, "cannot rebase to %s: rpm-ostree %s %s, and only rpm-ostree can keep the packages that are layered", r.Image.Reference(), tool.version, cannot).
			WithHint("undo what is layered first: rpm-ostree reset")
	}
	e.Note(fmt.Sprintf("rpm-ostree %s %s: libostree makes the deployment, still with one reboot", tool.version, cannot))
	return e.whenIdle(ctx, func() error { return e.stage(ctx, r, booted) })
}

// whenIdle waits until rpm-ostree is idle and calls work, which uses libostree only. If the daemon
// does not answer, whenIdle assumes that it has no transaction; libostree's lock prevents a
// conflict in any case.
func (e *RpmOstree) whenIdle(ctx context.Context, work func() error) error {
	err := e.Retry.Do(ctx, e.Waiting, func(ctx context.Context) error {
		s, err := e.status(ctx)
		if err != nil {
			if !e.silenceNoted {
				e.silenceNoted = true
				e.Note(fmt.Sprintf("going on without rpm-ostree: %v", err))
			}
			return errors.Join(ctx.Err(), e.checkLock())
		}
		return errors.Join(s.idle(), e.checkLock())
	})
	if err != nil {
		return err
	}
	return work()
}
