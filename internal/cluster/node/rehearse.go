package node

import (
	"context"
	"strings"
	"time"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/fault"
)

// How long a drain and its rehearsals may fail is counted from what the node's annotations say, so that an agent that
// starts anew does not begin to count anew.

func (a *Agent) actRehearse(ctx context.Context, s situation) error {
	m := &a.change
	if a.Policy.ByController { // which has rights on pods that this agent need not have
		a.seen, m.rehearsed = &s.node, true
		return nil
	}
	err := a.Drainer.Rehearse(ctx)
	if err == nil {
		a.seen, m.rehearsed = &s.node, true
		a.event(ctx, s.node, Event{Reason: api.EventDrainRehearsed, Message: "nothing stands in the way of a drain for " + m.config})
		return nil
	}
	if ctx.Err() != nil {
		return err
	}
	since := blockedSince(s.node, m.config, a.Now())
	f := failure{state: api.StateWorking, reason: "waits with the drain: " + fault.WithRemedy(err), soft: true, event: api.EventFailedToDrain, at: a.Now(), blocked: api.BlockedSince(since, m.config)}
	if before := s.node.Annotations[api.StateOfNode]; before == api.StateDegraded || a.Now().Sub(since) >= a.Policy.DrainLimit {
		f.state = api.StateDegraded // which it stays while it is tried again
	}
	m.fail(f)
	return nil
}

// blockedSince returns since when the rehearsals of the drain for a MachineConfig have failed; now, if the node does
// not say so.
func blockedSince(n Node, config string, now time.Time) time.Time {
	value := n.Annotations[api.DrainBlocked]
	if api.BlockedFor(value) != config {
		return now
	}
	since, _, _ := strings.Cut(value, " ")
	return sinceThen(since, now)
}

// blockedForAnother reports whether what a node says of rehearsals is about another MachineConfig.
func blockedForAnother(n Node, config string) bool {
	value, there := n.Annotations[api.DrainBlocked]
	return there && api.BlockedFor(value) != config
}

// sinceThen returns the time in an annotation, in RFC 3339; now, if it is not known or in the future.
func sinceThen(annotation string, now time.Time) time.Time {
	at, err := time.Parse(time.RFC3339, annotation)
	if err != nil || at.After(now) {
		return now
	}
	return at
}
