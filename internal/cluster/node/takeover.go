package node

import (
	"fmt"
	"strings"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/cluster/hostpivot"
)

// A node can come to this agent with a system that pivot knows nothing of, or not all: from the machine-config-daemon,
// in any state, or from its first boot. The agent has pivot apply the MachineConfig that the node has. That compares
// and records the whole system, without a reboot. Then the proof has something to compare with, as after any other
// change.

// mayJoin reports whether a node has the annotations of no MachineConfig at all, as one that has just
// registered. One that was released from its MachineConfig still has the current one.
func mayJoin(n Node) bool {
	return n.Annotations[api.DesiredConfig] == "" && n.Annotations[api.CurrentConfig] == "" && n.Annotations[api.CordonedFor] == ""
}

// joinsWith returns the MachineConfig that a host joins its cluster with; "" if no cluster has rendered
// the one that it has. The machine-config-daemon takes it from node-annotations.json, which a config
// server writes for the first boot, or from its own record. The host's status is newer than the first.
func joinsWith(s hostpivot.Status) string {
	if name := s.Current(); strings.HasPrefix(name, api.RenderedPrefix) {
		return name
	}
	return ""
}

// observeTakeover finds out what is left of another agent of the node.
func (a *Agent) observeTakeover(s *situation) {
	adopted := s.host.Status.Adopted()
	current := s.node.Annotations[api.CurrentConfig]
	s.takeover = !adopted && (current == a.change.config && !a.change.retried || mayJoin(s.node))
	s.inherited = !adopted && inherits(s.node)
	s.Ours = s.Ours || s.inherited
}

// inherits reports whether a node is cordoned because the machine-config-daemon has asked for it. That
// daemon does not distinguish an administrator's cordon from that.
func inherits(n Node) bool {
	return n.Unschedulable && n.Annotations[api.CordonedFor] == "" && n.Annotations[api.DrainStarted] == "" && api.IsDrain(n.Annotations[api.DesiredDrain])
}

// refusal returns why a takeover is not carried out. A pool's controller takes the node for one that is done and
// serves, and so do those for all its other nodes at the same time.
func (a *Agent) refusal(p hostpivot.Plan) failure {
	what, reasons := "a drain", p.Drain.Because
	if p.Reboots > 0 {
		what, reasons = "a reboot", p.RebootReasons()
	}
	return failure{event: api.EventNotProven, at: a.Now(), reason: fmt.Sprintf("cannot take over the node: the machine differs from %s, and needs %s (%s); correct it by hand, name another MachineConfig, or, for pivot to correct it, remove the annotation %s",
		a.change.config, what, First(reasons, mostNamed, "; "), api.FailedConfig)}
}
