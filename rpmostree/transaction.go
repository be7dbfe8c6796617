package rpmostree

import (
	"context"
	"fmt"
	"strings"

	"machine-pivot/internal/fault"
)

// transaction is one request to rpm-ostree that makes a deployment.
type transaction struct {
	run      func(context.Context) error
	before   func(context.Context) error // called before each call
	complete func(context.Context) error // completes and checks the staged deployment; fails if it is not the requested one
}

// transact runs a transaction, with retries.
func (e *RpmOstree) transact(ctx context.Context, t transaction) error {
	return e.Retry.Do(ctx, e.Waiting, func(ctx context.Context) error {
		if err := e.idle(ctx); err != nil {
			return err
		}
		if t.complete(ctx) == nil {
			return nil // an earlier try succeeded, but its answer was lost
		}
		if err := t.before(ctx); err != nil {
			return err
		}
		if err := within(ctx, e.Limits.forRebase(), t.run); err != nil {
			return e.despite(ctx, t, err)
		}
		return t.complete(ctx)
	})
}

// failedTrial is in rpm-ostree's message if no program runs in the new system
// (rpmostree-scripts.cxx). rpm-ostree tests this after it has staged the deployment.
const failedTrial = "Sanity-checking final rootfs"

// despite handles a failure of rpm-ostree. It returns nil if the staged deployment is the requested one all the same.
// After the daemon has finished, the client still lists the changed packages, and fails if it cannot.
func (e *RpmOstree) despite(ctx context.Context, t transaction, failure error) error {
	if ctx.Err() != nil || fault.KindOf(failure).Transient() || strings.Contains(failure.Error(), failedTrial) {
		return failure
	}
	// After its client was killed, the daemon continues.
	if err := e.idle(ctx); fault.KindOf(err).Transient() {
		return fmt.Errorf("%w (after: %v)", err, failure)
	} else if err != nil || t.complete(ctx) != nil {
		return failure
	}
	e.Note(fmt.Sprintf("the deployment is made, though rpm-ostree ended with a failure: %v", failure))
	return nil
}

// lockOptions returns the options that lock what a transaction stages.
func (t tool) lockOptions() []string {
	if t.since(2020, 4) { // the first release with the option in these calls
		return []string{"--lock-finalization"}
	}
	return nil
}

// lockByFile locks what a transaction stages, if the tool has no option for that.
func (e *RpmOstree) lockByFile(t tool) error {
	if t.since(2020, 4) {
		return nil
	}
	return e.touchLock()
}
