package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/hostpivot"
	"machine-pivot/internal/fault"
)

// start starts a run of pivot.
func (a *Agent) start(ctx context.Context, s situation, verb hostpivot.Verb) error {
	r := a.request(verb)
	r.Try = s.try
	r.Downloaded = s.System == SystemDownloaded
	r.Reboot = s.Change == ChangeReboot || s.Change == ChangeSingle
	return a.Runner.Start(ctx, r)
}

func (a *Agent) request(verb hostpivot.Verb) hostpivot.Request {
	return hostpivot.Request{
		Verb: verb, Config: a.change.config, Digest: a.change.digest, Data: a.change.data,
		Unsupported: a.Policy.Unsupported,
	}
}

func (a *Agent) actBegin(ctx context.Context, s situation) error {
	if s.retry != nil { // first of all, since an agent that is restarted knows only what the node says
		return a.patch(ctx, s, Patch{Annotations: map[string]*string{api.Retried: s.retry.annotation(a.change.config)}})
	}
	p := Patch{Annotations: map[string]*string{
		api.StateOfNode: new(api.StateWorking), api.Reason: new(""), api.FailedConfig: nil, api.NeedsReplacement: nil, api.DrainBlocked: nil,
		api.CannotStart: nil,
	}}
	s.correct(p, a.change.config)
	if s.inherited {
		p.Annotations[api.CordonedFor], p.Annotations[api.DrainStarted] = new(a.change.config), new(a.Now().UTC().Format(time.RFC3339))
	}
	if s.again != nil {
		p.Annotations[api.Attempt] = s.again.annotation(a.change.config)
	}
	if err := a.patch(ctx, s, p); err != nil {
		return err
	}
	a.sayAgain(ctx, s.node, s.again)
	if s.System == SystemDownloaded && s.again == nil {
		a.event(ctx, s.node, Event{Reason: api.EventUpdateStarted, Message: "begins with " + a.change.config + ", which is downloaded"})
	}
	return nil
}

func (a *Agent) actPlan(ctx context.Context, s situation) error {
	a.seen = &s.node
	plan, err := a.Runner.Plan(ctx, a.request(hostpivot.Apply))
	if f, ok := errors.AsType[*hostpivot.Failure](err); ok {
		a.change.fail(failureOf(f, a.Policy, a.Now()))
		return nil
	}
	if err != nil {
		return err
	}
	if s.takeover && (plan.Reboots > 0 || plan.Drain.Wanted) {
		a.change.fail(a.refusal(plan))
		return nil
	}
	switch reboot := rebootOf(s.node, a.Policy); {
	case plan.Reboots > 0:
		a.change.change = reboot
	case plan.Drain.Wanted && reboot != ChangeSingle:
		a.change.change = ChangeDrain
	default:
		a.change.change = ChangeLive
	}
	message := fmt.Sprintf("%s is downloaded and checked; reboots: %d", a.change.config, plan.Reboots)
	if plan.Drain.Wanted {
		message += "; drain: " + strings.Join(plan.Drain.Because, ", ")
	}
	a.event(ctx, s.node, Event{Reason: api.EventDownloaded, Message: message})
	return nil
}

// actCordon asks for the drain and, if the agent itself drains, cordons the node. In the same change it
// records that the node is cordoned because of the agent, unless it was cordoned before.
func (a *Agent) actCordon(ctx context.Context, s situation) error {
	p := Patch{Annotations: map[string]*string{
		api.DesiredDrain: new(api.DrainFor(a.change.config)),
		api.DrainStarted: new(a.Now().UTC().Format(time.RFC3339)),
		api.Reason:       new(""),
		api.DrainBlocked: nil,
		api.FailedConfig: nil, // otherwise another agent would give the node back, and drain it once more
	}}
	if f := a.change.failure; f != nil {
		f.reported = false
	}
	if s.node.Annotations[api.LastAppliedDrain] == api.DrainFor(a.change.config) { // somebody has ended that drain
		p.Annotations[api.LastAppliedDrain] = new("")
	}
	if !s.node.Unschedulable {
		p.Annotations[api.CordonedFor] = new(a.change.config)
		if !a.Policy.ByController {
			p.Unschedulable = new(true)
		}
	}
	if err := a.patch(ctx, s, p); err != nil {
		return err
	}
	a.event(ctx, s.node, Event{Reason: api.EventCordon, Message: "cordoned for " + a.change.config})
	return nil
}

// actDrain empties the node, or waits for the controller that does. If that takes too long, the node is
// given back, or the drain continues, by the policy.
func (a *Agent) actDrain(ctx context.Context, s situation) (time.Duration, error) {
	err := errors.New("the controller has not reported the drain as complete")
	wait := pollDrain
	if !a.Policy.ByController {
		err, wait = a.Drainer.Drain(ctx, s.node), retryDrain
	}
	if err == nil {
		if err := a.patch(ctx, s, Patch{Annotations: map[string]*string{api.LastAppliedDrain: new(api.DrainFor(a.change.config)), api.Reason: new("")}}); err != nil {
			return 0, err
		}
		a.event(ctx, s.node, Event{Reason: api.EventDrain, Message: "drained for " + a.change.config})
		return 0, nil
	}
	if ctx.Err() != nil || errors.Is(err, ErrConflict) {
		return 0, err
	}
	if _, known := timeOf(s.node.Annotations[api.DrainStarted], a.Now()); !known {
		return 0, a.patch(ctx, s, Patch{Annotations: map[string]*string{api.DrainStarted: new(a.Now().UTC().Format(time.RFC3339))}})
	}
	reason := api.BoundedReason("cannot drain the node: " + fault.WithRemedy(err))
	limit := a.Policy.DrainLimit
	if after, forced := ForcesDrain(s.node); forced { // what is deleted then has its grace period
		limit = max(limit, after+forcedEnds)
	}
	overdue := a.Now().Sub(sinceThen(s.node.Annotations[api.DrainStarted], a.Now())) >= limit
	if overdue && !a.Policy.KeepDraining {
		a.seen = &s.node
		a.change.fail(failure{reason: fmt.Sprintf("%s, within %s", reason, limit), event: api.EventFailedToDrain, at: a.Now()})
		return 0, nil
	}
	return wait, a.sayBlocked(ctx, s, reason, overdue)
}

// forcedEnds is how long a drain still tries after it has begun to delete pods.
const forcedEnds = 10 * time.Minute

// ForcesDrain returns after what time the drain of a node deletes the pods that a budget keeps; false: it never does, also if
// nobody understands the annotation.
func ForcesDrain(n Node) (after time.Duration, forces bool) {
	after, err := time.ParseDuration(n.Annotations[api.ForceDrainAfter])
	return after, err == nil && after > 0
}

// sayBlocked says what a drain waits for, if the node does not say it yet.
func (a *Agent) sayBlocked(ctx context.Context, s situation, reason string, overdue bool) error {
	said := s.node.Annotations[api.Reason] == reason && (!overdue || s.node.Annotations[api.StateOfNode] == api.StateDegraded)
	if said || a.Policy.ByController && !overdue {
		return nil
	}
	p := Patch{Annotations: map[string]*string{api.Reason: new(reason)}}
	if overdue {
		p.Annotations[api.StateOfNode] = new(api.StateDegraded)
	}
	if err := a.patch(ctx, s, p); err != nil {
		return err
	}
	a.event(ctx, s.node, Event{Reason: api.EventFailedToDrain, Message: reason, Warning: true})
	return nil
}

func (a *Agent) actAnnounce(ctx context.Context, s situation) error {
	if err := a.patch(ctx, s, Patch{Annotations: map[string]*string{api.PostConfigAction: new(api.ActionReboot)}}); err != nil {
		return err
	}
	a.seen = nil // somebody may have uncordoned the node meanwhile
	a.event(ctx, s.node, Event{Reason: api.EventReboot, Message: "commits " + a.change.config + " and reboots"})
	return nil
}

func (a *Agent) actApply(ctx context.Context, s situation) error {
	if s.Change == ChangeLive || s.Change == ChangeDrain {
		a.event(ctx, s.node, Event{Reason: api.EventSkipReboot, Message: "applies " + a.change.config + " without a reboot"})
	}
	return a.start(ctx, s, hostpivot.Apply)
}

func (a *Agent) actProve(ctx context.Context, s situation) error {
	a.seen = &s.node
	m := &a.change
	found, err := a.Runner.Verify(ctx)
	if f, ok := errors.AsType[*hostpivot.Failure](err); ok {
		m.fail(failureOf(f, a.Policy, a.Now()))
		return nil
	}
	if err != nil {
		return err
	}
	m.verify, m.compared = found, true
	if found.OK {
		m.proven = a.Now()
		a.Metrics.proven(a.Now())
		return nil
	}
	f := failure{reason: "the running system differs from " + m.config + ": " + summary(found), event: api.EventNotProven, at: a.Now()}
	if s.node.Annotations[api.CurrentConfig] == m.config {
		f.event = api.EventDrift
	}
	m.fail(f)
	return nil
}

// summary returns the first differences, and how many there are.
func summary(v hostpivot.Verify) string {
	var messages []string
	for _, d := range v.Differences {
		messages = append(messages, d.Message)
	}
	return First(messages, mostNamed, "; ")
}

// actUncordon ends the agent's cordon, or asks the controller to do so and waits for it.
func (a *Agent) actUncordon(ctx context.Context, s situation) (time.Duration, error) {
	config := s.node.Annotations[api.CordonedFor]
	if a.change.config != "" {
		config = a.change.config
	}
	end := api.UncordonFor(config)
	p := Patch{Annotations: map[string]*string{api.PostConfigAction: new("")}}
	switch asked, applied := s.node.Annotations[api.DesiredDrain], s.node.Annotations[api.LastAppliedDrain]; {
	case !a.Policy.ByController:
		p.Unschedulable = new(false)
		p.Annotations[api.DesiredDrain], p.Annotations[api.LastAppliedDrain] = new(end), new(end)
		p.Annotations[api.CordonedFor], p.Annotations[api.DrainStarted] = nil, nil
	case asked != end:
		p.Annotations[api.DesiredDrain] = new(end)
		return pollDrain, a.patch(ctx, s, p)
	case applied != end:
		return pollDrain, nil
	default:
		p.Annotations[api.CordonedFor], p.Annotations[api.DrainStarted] = nil, nil
	}
	if err := a.patch(ctx, s, p); err != nil {
		return 0, err
	}
	a.event(ctx, s.node, Event{Reason: api.EventUncordon, Message: "uncordoned after " + config})
	return 0, nil
}

func (a *Agent) actDone(ctx context.Context, s situation) error {
	before := s.node.Annotations[api.CurrentConfig]
	p := Patch{Annotations: map[string]*string{
		api.StateOfNode: new(api.StateDone), api.CurrentConfig: new(a.change.config), api.Reason: new(""), api.PostConfigAction: new(""),
		api.FailedConfig: nil, api.DrainStarted: nil, api.DrainBlocked: nil, api.NeedsReplacement: nil, api.Attempt: nil, api.Retried: nil,
	}}
	if s.node.Annotations[api.DesiredConfig] == "" { // it joins
		p.Annotations[api.DesiredConfig] = new(a.change.config)
	}
	if e := a.early; e.cannot != "" {
		p.Annotations[api.CannotStart] = s.cannot(e.config, e.cannot, e.failure)
	}
	withdraw(s.node, p)
	if err := a.patch(ctx, s, p); err != nil {
		return err
	}
	a.change.failure, a.early.cannot = nil, ""
	switch {
	case before != a.change.config:
		a.event(ctx, s.node, Event{Reason: api.EventDone, Message: "the node has " + a.change.config})
	case s.node.Annotations[api.StateOfNode] == api.StateDegraded:
		a.event(ctx, s.node, Event{Reason: api.EventDone, Message: "the node has " + a.change.config + " again"})
	}
	return nil
}

func (a *Agent) actReport(ctx context.Context, s situation) error {
	f := a.change.failure
	p := Patch{Annotations: map[string]*string{
		api.StateOfNode: new(f.state), api.Reason: new(f.reason), api.PostConfigAction: new(""), api.DrainBlocked: nil,
	}}
	if f.blocked != "" {
		p.Annotations[api.DrainBlocked] = new(f.blocked)
	}
	if !f.soft {
		p.Annotations[api.FailedConfig], p.Annotations[api.Attempt], p.Annotations[api.Retried] = new(a.change.config), nil, nil
	}
	if !f.stray {
		s.correct(p, a.change.config)
	}
	if f.cannot != "" {
		p.Annotations[api.CannotStart] = s.cannot(a.change.config, f.cannot, f.reason)
	}
	if f.replace {
		p.Annotations[api.NeedsReplacement] = new(a.change.config)
	}
	withdraw(s.node, p)
	if err := a.patch(ctx, s, p); err != nil {
		return err
	}
	f.reported = !f.soft
	a.Metrics.failed()
	a.event(ctx, s.node, Event{Reason: f.event, Message: f.reason, Warning: true})
	if f.replace {
		a.event(ctx, s.node, Event{Reason: api.EventNeedsReplacement, Warning: true,
			Message: "another machine is needed instead of this one: only an installation can give it " + a.change.config})
	}
	return nil
}

// withdraw adds to a patch that a drain is no longer asked for.
func withdraw(n Node, p Patch) {
	if withdrawn(n) {
		p.Annotations[api.DesiredDrain] = new(n.Annotations[api.LastAppliedDrain])
	}
}
