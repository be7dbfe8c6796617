package node

import (
	"context"
	"strings"
	"time"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/fault"
)

// A rehearsal informs, and forbids only what the policy forbids. How long a drain and its rehearsals may fail is counted from what the node's annotations say, so that an agent that
// starts anew does not begin to count anew.

func (a *Agent) actRehearse(ctx context.Context, s situation) error {
	m := &a.change
	if a.Policy.ByController { // which has rights on pods that this agent need not have
		a.seen, m.rehearsed = &s.node, true
		return nil
	}
	err := a.Drainer.Rehearse(ctx)
	if ctx.Err() != nil {
		return err
	}
	if fault.KindOf(err) != fault.Refused { // what the drain sets going is not known before
		a.seen, m.rehearsed = &s.node, true
		e := Event{Reason: api.EventDrainRehearsed, Message: "nothing stands in the way of a drain for " + m.config}
		if err != nil {
			e.Message, e.Warning = "a drain for "+m.config+" would wait now: "+fault.WithRemedy(err), true
		}
		a.event(ctx, s.node, e)
		return nil
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

// sinceThen returns the time in an annotation, in RFC 3339; now, if it is not known.
func sinceThen(annotation string, now time.Time) time.Time {
	if at, known := timeOf(annotation, now); known {
		return at
	}
	return now
}

// timeOf returns the time in an annotation, and whether it is known. One in the future is not: whoever has written it had
// another clock, and it is to be written anew.
func timeOf(annotation string, now time.Time) (at time.Time, known bool) {
	at, err := time.Parse(time.RFC3339, annotation)
	return at, err == nil && !at.After(now)
}
