package rpmostree

import (
	"context"
	"fmt"
	"strings"

	"machine-pivot/internal/fault"
	"machine-pivot/internal/host"
)

// transaction is one call of rpm-ostree that makes a deployment.
type transaction struct {
	argv     []string
	before   func(context.Context) error // before each try that follows
	complete func(context.Context) error // nil if what is staged is what was asked for
}

// transact has rpm-ostree carry out a transaction, again and again while that can help.
func (e *RpmOstree) transact(ctx context.Context, t transaction) error {
	return e.Retry.Do(ctx, e.Waiting, func(ctx context.Context) error {
		if err := e.idle(ctx); err != nil {
			return err
		}
		if t.complete(ctx) == nil {
			return nil // a try before did it, only its answer was lost
		}
		if err := t.before(ctx); err != nil {
			return err
		}
		if _, err := e.call(ctx, e.Limits.forRebase(), host.WithTmp(e.Sysroot.Root(), e.Run), t.argv...); err != nil {
			return e.despite(ctx, t, err)
		}
		return t.complete(ctx)
	})
}

// failedTrial is how rpm-ostree says that nothing runs in the new system
// (rpmostree-scripts.cxx). It tries that when the deployment is staged already.
const failedTrial = "Sanity-checking final rootfs"

// despite looks at what is staged after rpm-ostree has failed: after the daemon's
// work its client still lists the packages that change, and fails if it cannot.
func (e *RpmOstree) despite(ctx context.Context, t transaction, failure error) error {
	if ctx.Err() != nil || fault.KindOf(failure).Transient() || strings.Contains(failure.Error(), failedTrial) {
		return failure
	}
	// A client that was killed leaves the daemon at work.
	if err := e.idle(ctx); fault.KindOf(err).Transient() {
		return fmt.Errorf("%w (after: %v)", err, failure)
	} else if err != nil || t.complete(ctx) != nil {
		return failure
	}
	e.Note(fmt.Sprintf("the deployment is made, though rpm-ostree ended with a failure: %v", failure))
	return nil
}

// lockOptions lock what a transaction stages.
func (t tool) lockOptions() []string {
	if t.since(2020, 4) { // the first with the option in these calls
		return []string{"--lock-finalization"}
	}
	return nil
}

// lockByFile locks what a transaction stages if the tool has no option for it.
func (e *RpmOstree) lockByFile(t tool) error {
	if t.since(2020, 4) {
		return nil
	}
	return e.touchLock()
}
