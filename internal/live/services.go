package live

import (
	"context"
	"fmt"
	"slices"
	"time"

	"machine-pivot/internal/disruption"
	"machine-pivot/internal/fault"
)

// Services are the services of the running system. Reload and Restart return when systemd
// is done with it.
type Services interface {
	DaemonReload(ctx context.Context) error
	Reload(ctx context.Context, unit string) error
	Restart(ctx context.Context, unit string) error // starts one that does not run
	State(ctx context.Context, unit string) (UnitState, error)
	// Starting reports whether the system is still coming up.
	Starting(ctx context.Context) (bool, error)
	// UpdateTrust collects the trusted certificates, as the service does that some systems
	// have for it.
	UpdateTrust(ctx context.Context) error
}

// UnitState is what systemd says of a unit, in its words (org.freedesktop.systemd1(5)).
type UnitState struct {
	Load      string // LoadState: loaded, masked, not-found, …
	Active    string // ActiveState
	Sub       string // SubState
	Result    string // of the last run: success, …
	Type      string // of a service: oneshot, …
	Condition bool   // whether its conditions held when it was last started
}

// runs reports whether a unit runs, or is on its way.
func (s UnitState) runs() bool { return s.Active != "inactive" && s.Active != "failed" }

// well reports whether a unit is as it should be after a reload or restart.
func (s UnitState) well() bool {
	if s.Type == "oneshot" && s.Active == "inactive" {
		return s.Result == "success" && s.Condition
	}
	return slices.Contains([]string{"active", "reloading", "refreshing"}, s.Active)
}

// act carries out actions in their order, up to the first that fails, and returns how
// many were begun.
func (r *Runner) act(ctx context.Context, c Change, actions []disruption.Action) (begun int, err error) {
	starting := false
	if len(actions) > 0 && c.BootID != r.BootID {
		if starting, err = r.Services.Starting(ctx); err != nil {
			return 0, fault.New(fault.Refused, "cannot tell services of the change: %w", err)
		}
	}
	for i, a := range actions {
		if err := ctx.Err(); err != nil {
			return i, context.Cause(ctx)
		}
		if err := r.do(ctx, a, starting); err != nil {
			return i + 1, fault.New(fault.Refused, "cannot %s: %w", a, err)
		}
	}
	return len(actions), nil
}

// startingTimeout bounds an action while the system comes up, which waits for it.
const startingTimeout = 2 * time.Minute

// do carries out one action. While the system comes up, in a later boot than that of the
// change, services that do not run yet are left alone: they start with what is there then.
// Those that do are restarted: what a reload needs, such as the message bus, may not be up.
func (r *Runner) do(ctx context.Context, a disruption.Action, starting bool) error {
	if starting {
		bounded, cancel := context.WithTimeoutCause(ctx, startingTimeout, fmt.Errorf("it takes longer than %s", startingTimeout))
		defer cancel()
		ctx = bounded
		if a.Type == disruption.Reload {
			a.Type = disruption.Restart
		}
	}
	if a.Type == disruption.DaemonReload {
		r.Note(a.String())
		return r.Services.DaemonReload(ctx)
	}
	before, err := r.Services.State(ctx, a.Service)
	switch {
	case err != nil:
		return err
	case starting && !before.runs():
		return nil
	case before.Load == "not-found" && a.Service == disruption.CATrust:
		return r.Services.UpdateTrust(ctx)
	case before.Load == "not-found", before.Load == "masked":
		r.Note(fmt.Sprintf("%s is %s: nothing to %s", a.Service, before.Load, a))
		return nil
	case a.Type == disruption.Reload && !before.runs():
		r.Note(fmt.Sprintf("%s does not run: it reads what is changed when it starts", a.Service))
		return nil
	}
	r.Note(a.String())
	if a.Type == disruption.Reload {
		err = r.Services.Reload(ctx, a.Service)
	} else {
		err = r.Services.Restart(ctx, a.Service)
	}
	if err != nil {
		return err
	}
	after, err := r.Services.State(ctx, a.Service)
	switch {
	case err != nil || after.well():
		return err
	case a.Service == disruption.CATrust && !after.Condition: // it starts on the first boot only
		return r.Services.UpdateTrust(ctx)
	}
	return fmt.Errorf("it is %s (%s, result %s) afterwards", after.Active, after.Sub, after.Result)
}
