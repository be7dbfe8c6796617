package node

import (
	"fmt"

	"machine-pivot/internal/cluster/api"
)

// observeStray finds out whether the host has another system than the node says, although nobody has given the node
// another MachineConfig. Somebody has booted an old deployment, or restored the cluster's objects from an older state.
// An agent disturbs its node only for a MachineConfig that it was given, since all other nodes may be in the same
// situation at the same time. So that is a failure until somebody removes api.FailedConfig, as the fleet's controller
// does when the node has a slot.
func (a *Agent) observeStray(s *situation) {
	m, note := &a.change, s.node.Annotations
	if m.failure != nil || s.Run != RunIdle || !s.claims(m.config) || !s.host.Status.Adopted() {
		return
	}
	switch note[api.StateOfNode] {
	case api.StateWorking, api.StateDegraded, api.StateUnreconcilable:
		if note[api.FailedConfig] != m.config { // it was told to try
			return
		}
	}
	m.fail(failure{event: api.EventDrift, permanent: true, stray: true, at: a.Now(),
		reason: fmt.Sprintf("the node says that it has %s, and its host runs %s; nobody has given it another one. It changes when the pool's controller gives it %[1]s again, or somebody removes the annotation %[3]s",
			m.config, s.host.Status.Current(), api.FailedConfig)})
}

// claims reports whether the node says that it has a MachineConfig, and its host has another one.
func (s *situation) claims(config string) bool {
	runs := s.host.Status.Current()
	return !s.takeover && s.node.Annotations[api.CurrentConfig] == config && runs != config && runs != ""
}

// correct has the node say which MachineConfig its host has, if it says that it has the one that it is given now. Or else
// it could not be told from a node that was not given any.
func (s *situation) correct(p Patch, config string) {
	if s.claims(config) {
		p.Annotations[api.CurrentConfig] = new(s.host.Status.Current())
	}
}
