package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"machine-pivot/internal/cluster/api"
)

// unavailable returns why a node does not serve as it should, such as "is cordoned"; "" if it does.
func (n *Node) unavailable() string {
	switch {
	case n.Problem != "":
		return n.Problem
	case n.Annotations[api.CordonedFor] != "":
		return "is cordoned for " + n.Annotations[api.CordonedFor]
	case n.desired() == "" && n.Cordoned:
		return "is cordoned"
	case n.desired() == "": // whatever else it says is about nothing that it was given
		return ""
	case n.state() != api.StateDone:
		return strings.TrimSuffix("is "+n.stateName()+": "+n.Annotations[api.Reason], ": ")
	case n.desired() != n.current():
		return "does not have " + n.desired()
	case n.Cordoned:
		return "is cordoned"
	}
	return n.unproven()
}

func (n *Node) stateName() string {
	if s := n.state(); s != "" {
		return s
	}
	return "without a state"
}

// unproven returns what speaks against a node that says it has its configuration.
func (n *Node) unproven() string {
	if why := n.System.Unproven(n.current(), n.BootID); why != "" {
		return why
	}
	if n.Check != "" {
		return "does not pass the pool's check: " + n.Check
	}
	return ""
}

// hasProven reports whether a node has a configuration, and nothing speaks against it.
func (n *Node) hasProven(config string) bool {
	return api.HasConfig(config, n.Annotations, n.unproven())
}

// cordonedByPeople reports whether somebody else than the agent has cordoned a node.
func (n *Node) cordonedByPeople() bool { return n.Cordoned && n.Annotations[api.CordonedFor] == "" }

// hasFailed reports whether a node says that its desired configuration has failed. One that its machine cannot start was
// not tried. A failure is that of the configuration that it names: an agent that was given another one keeps it until it
// begins.
func (n *Node) hasFailed() bool {
	failed := n.Annotations[api.FailedConfig]
	return (n.state() == api.StateDegraded || n.state() == api.StateUnreconcilable) && n.desired() != "" && !n.refuses(n.desired()) &&
		(failed == "" || failed == n.desired())
}

// isStray reports whether a node has left its configuration without being given another one. Its agent has found
// another system than the annotations name, as after a restore of etcd, and waits until it is given that name again.
func (n *Node) isStray() bool {
	return n.hasLeft() && n.Annotations[api.FailedConfig] == n.desired()
}

// hasLeft is isStray also after the node was given its configuration again, until its agent has begun.
func (n *Node) hasLeft() bool {
	return n.hasFailed() && n.desired() == n.current() && n.System != nil && n.System.Current != "" && n.System.Current != n.current()
}

// failure returns why the target has failed on a node; "" if it has not. A node that has a slot and does not
// come back has failed, too, unless it was down already when it was given the target. A node that has left the target
// has not failed with it.
func (v *view) failure(m *member) string {
	switch hook := v.hookFailure(m.Name); {
	case hook != "":
		return hook
	case m.desired() != v.target, m.hasLeft():
		return ""
	case m.hasFailed():
		return strings.TrimSuffix(m.stateName()+": "+m.Annotations[api.Reason], ": ")
	case (m.taken || m.elsewhere != "") && m.isMissing(v.now, v.missingAfter()) && !slices.Contains(v.pool.Rollout.Down, m.Name):
		return fmt.Sprintf("missing: it is not Ready since %s", m.NotReadySince.UTC().Format(time.RFC3339))
	}
	return ""
}

func (n *Node) isMissing(now time.Time, after time.Duration) bool {
	return !n.NotReadySince.IsZero() && now.Sub(n.NotReadySince) >= after
}

func (v *view) missingAfter() time.Duration {
	if after := v.pool.Spec.MissingAfter.Duration; after > 0 {
		return after
	}
	return 30 * time.Minute
}
