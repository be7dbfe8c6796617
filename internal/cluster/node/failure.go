package node

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/hostpivot"
	"machine-pivot/internal/fault"
)

// failure is why a change, or the proof of a system, has failed.
type failure struct {
	state     string // of the node
	reason    string // bounded
	event     string // to be recorded with it
	permanent bool   // it is tried again only if somebody asks for it
	soft      bool   // the node waits for something: no new agent has to know that
	blocked   string // the annotation api.DrainBlocked, of a rehearsal; "": none
	stray     bool   // the node was given nothing that its host lacks
	cannot    string // the names of the verdicts by which the machine cannot start the image; "": none
	replace   bool   // only an installation can make the change, and is to be asked for
	at        time.Time
	tries     int  // that failed before
	reported  bool // the node's annotations had it
	due       bool // it is tried again now: the host says that something has changed
}

// failureOf returns the failure of a run of pivot.
func failureOf(f *hostpivot.Failure, p Policy, now time.Time) failure {
	out := failure{reason: f.WithHint(), permanent: f.Permanent, at: now}
	if out.cannot = strings.Join(f.Verdicts, ","); out.cannot != "" {
		out.event = api.EventCannotStart
	}
	switch f.Class {
	case fault.BadInput.String(), fault.Unreconcilable.String(), fault.Replace.String():
		out.state, out.event = api.StateUnreconcilable, api.EventFailedToReconcile
		out.replace = f.Class != fault.BadInput.String() && p.Unsupported == UnsupportedReplace
	}
	return out
}

// UnsupportedReplace is the Policy.Unsupported that asks for a new machine.
const UnsupportedReplace = "replace"

// fail records a failure. What was found out for the change is found out again when it is tried again.
func (m *memory) fail(f failure) {
	f.state, f.event = cmp.Or(f.state, api.StateDegraded), cmp.Or(f.event, api.EventFailed)
	f.reason = api.BoundedReason(f.reason)
	if m.failure != nil {
		f.tries = m.failure.tries + 1
	}
	m.failure, m.retried = &f, false
	m.change, m.rehearsed, m.proven = ChangeUnknown, false, time.Time{}
}

// failIfDue is fail for what is noticed in each step.
func (m *memory) failIfDue(f failure) {
	if m.failure == nil || !m.failure.waits(f.at) {
		m.fail(f)
	}
}

// next returns when the change is tried again.
func (f *failure) next() time.Time {
	switch {
	case f.soft:
		return f.at.Add(retryDrain)
	case f.event == api.EventFailedToDrain: // a node is not to be cordoned most of the time
		return f.at.Add(maxRetry)
	}
	return f.at.Add(min(time.Minute<<min(f.tries, 10), maxRetry))
}

// waits reports whether the change is not to be tried now. A clock that was set back does not make it
// wait longer.
func (f *failure) waits(now time.Time) bool {
	return f.permanent || !f.due && now.Before(f.next()) && !now.Before(f.at)
}

// degrades reports whether there is a failure, also while the change is tried again, for which the node does not
// only wait.
func (f *failure) degrades() bool { return f != nil && f.state != api.StateWorking }

// observeFailure sets whether the change has failed. A failure that another agent has reported is kept;
// an administrator ends it by removing its annotation.
func (a *Agent) observeFailure(s *situation) {
	m, failed := &a.change, s.node.Annotations[api.FailedConfig] == a.change.config
	if failed && m.failure.saidBy(s.node) { // by another agent
		m.failure.reported = true
	}
	switch {
	case m.failure == nil && failed && !m.retried:
		m.failure = restored(s.node, a.Now())
	case m.failure != nil && m.failure.reported && !failed:
		m.failure, m.retried = nil, true
	}
	s.Failed = m.failure != nil && m.failure.waits(a.Now())
}

// saidBy reports whether a node's annotations have the failure.
func (f *failure) saidBy(n Node) bool {
	return f != nil && !f.soft && n.Annotations[api.StateOfNode] == f.state && n.Annotations[api.Reason] == f.reason
}

// restored returns the failure that a node's annotations report.
func restored(n Node, now time.Time) *failure {
	f := failure{state: n.Annotations[api.StateOfNode], reason: n.Annotations[api.Reason], at: now, reported: true}
	if f.permanent = f.state == api.StateUnreconcilable; !f.permanent {
		f.state = api.StateDegraded
	}
	return &f
}

// mostNamed is how many differences, or reasons, a failure names.
const mostNamed = 5

// First joins the first of several reasons of a failure, and says how many more there are.
func First(reasons []string, most int, separator string) string {
	if more := len(reasons) - most; more > 0 {
		return fmt.Sprintf("%s%sand %d more", strings.Join(reasons[:most], separator), separator, more)
	}
	return strings.Join(reasons, separator)
}
