package day2

import (
	"context"
	"fmt"
	"time"

	"machine-pivot/internal/disruption"
	"machine-pivot/internal/fault"
)

// act runs actions in order, up to the first that fails, and returns how many were begun.
func (r *LiveRunner) act(ctx context.Context, c LiveChange, actions []disruption.Action) (begun int, err error) {
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

// startingTimeout is the time limit of an action while the system starts, which waits for it.
const startingTimeout = 2 * time.Minute

// do runs one action. starting says that the system is still starting, in a later boot than that
// of the change. Then services that do not run yet are left alone, as they will start with the
// changed files. Running ones are restarted, since a reload may need services that are not up
// yet, such as the message bus.
func (r *LiveRunner) do(ctx context.Context, a disruption.Action, starting bool) error {
	if starting {
		bounded, cancel := context.WithTimeoutCause(ctx, startingTimeout, fmt.Errorf("it takes longer than %s", startingTimeout))
		defer cancel()
		ctx = bounded
		if a.Type == disruption.Reload {
			a.Type = disruption.Restart
		}
	}
	if a.Type == disruption.DaemonReload {
		r.begin(a)
		return r.Services.DaemonReload(ctx)
	}
	before, err := r.Services.State(ctx, a.Service)
	switch {
	case err != nil:
		return err
	case disruption.Ends(before.ID):
		return fmt.Errorf("the unit is %s, which ends the system or restarts all of its services: such a change has the action Reboot", before.ID)
	case starting && !before.Runs():
		return nil
	case before.Load == "not-found" && a.Service == disruption.CATrust:
		r.tellActed(a)
		return r.Services.UpdateTrust(ctx)
	case before.Load == "not-found", before.Load == "masked":
		r.Note(fmt.Sprintf("%s is %s: nothing to %s", a.Service, before.Load, a))
		return nil
	case a.Type == disruption.Reload && !before.Runs():
		r.Note(fmt.Sprintf("%s does not run: it reads what is changed when it starts", a.Service))
		return nil
	}
	r.begin(a)
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
	case err != nil || after.Healthy():
		return err
	case a.Service == disruption.CATrust && !after.Condition: // its condition is met only on the first boot
		return r.Services.UpdateTrust(ctx)
	}
	return fmt.Errorf("it is %s (%s, result %s) afterwards", after.Active, after.Sub, after.Result)
}

// begin notes an action that is carried out.
func (r *LiveRunner) begin(a disruption.Action) {
	r.Note(a.String())
	r.tellActed(a)
}

func (r *LiveRunner) tellActed(a disruption.Action) {
	if r.Acted != nil {
		r.Acted(a)
	}
}
