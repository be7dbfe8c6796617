package node

import (
	"cmp"
	"fmt"

	"machine-pivot/internal/cluster/api"
	"machine-pivot/internal/pid1"
)

// retry is what had failed when an administrator wanted it to be tried again.
type retry struct {
	start pid1.StartID // of the host
	run   string       // ID of the last run; noRun: there was none
}

// noRun stands for no run in the node's annotation.
const noRun = "-"

// retryOf returns the retry that a node's annotation has for a MachineConfig; nil if there is none.
func retryOf(n Node, config string) *retry {
	var r retry
	var of string
	if _, err := fmt.Sscanf(n.Annotations[api.Retried], "%s %s %s", &r.start, &r.run, &of); err != nil || of != config {
		return nil
	}
	return &r
}

// annotation returns the retry as the value of the node's annotation.
func (r retry) annotation(config string) *string {
	return new(fmt.Sprintf("%s %s %s", r.start, r.run, config))
}

// observeRetried finds out whether an earlier agent was told to try again what has failed: then that is known, and only
// what fails from then on is a failure. It does so until the machine boots with the announcement of a reboot for that.
func (a *Agent) observeRetried(s *situation) {
	m, r := &a.change, retryOf(s.node, a.change.config)
	if r == nil || m.failure != nil || m.retried {
		return
	}
	if m.judged == "" && r.start == s.host.Start {
		m.judged = r.run
	}
	m.retried = r.start == s.host.Start || s.node.Annotations[api.PostConfigAction] != api.ActionReboot
}

// recordRetried has the node say that it tries again, if it does not say it yet.
func (a *Agent) recordRetried(s *situation) {
	if a.change.retried && retryOf(s.node, a.change.config) == nil && s.System != SystemTarget && s.System != SystemTrial {
		s.retry = &retry{start: s.host.Start, run: cmp.Or(s.host.Run.Request.ID, noRun)}
	}
}
